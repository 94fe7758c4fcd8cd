"""Name rows, columns and people, and compare their names."""
