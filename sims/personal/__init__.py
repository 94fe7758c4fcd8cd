"""The experiments of personalized PCA: `python -m sims.personal`."""
