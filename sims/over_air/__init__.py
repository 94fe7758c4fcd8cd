"""The experiments of over-air subspace tracking: `python -m sims.over_air`."""
