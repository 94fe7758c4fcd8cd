"""Robust PCA: algorithms that separate rows into a low-rank part and a sparse part."""
