"""The package's foundation, which knows nothing of runs: errors, checks, linear algebra and saved files."""
