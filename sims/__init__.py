"""The simulations of the papers, run from the repository: `python -m sims.local_power`, `python -m sims.faps`."""
