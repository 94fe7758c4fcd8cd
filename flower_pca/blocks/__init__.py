"""Blocks: rows in any storage, which are read in pieces and worked on in blocks."""
