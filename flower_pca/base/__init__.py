"""What knows nothing of runs: errors, checks, linear algebra, saved files."""
