"""Settings of a run that have a small class or table, each in a separate file."""
