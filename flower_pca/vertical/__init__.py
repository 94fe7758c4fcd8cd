"""Runs in which each client holds different columns of the same people (vertically partitioned data)."""
