"""The experiments of DCF-PCA: `python -m sims.robust`."""
