"""Read rows from any storage in pieces, and process them in blocks."""
