"""Robust PCA: rows as a low-rank part and a sparse one."""
