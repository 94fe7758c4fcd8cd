"""Settings that a run is asked for as plain values, one file for each."""
