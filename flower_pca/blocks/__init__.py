"""Blocks: rows of any storage, which are read by pieces and worked on by blocks."""
