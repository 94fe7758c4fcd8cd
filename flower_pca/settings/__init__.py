"""Settings of a run that are plain values, in one file each."""
