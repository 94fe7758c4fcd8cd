"""The settings of a run that are small value classes, each in its own file."""
