"""The results of runs: classes that summarize and save a result, and project rows."""
