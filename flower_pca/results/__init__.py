"""The results of runs: classes that summarize, save and project."""
