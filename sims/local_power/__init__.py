"""The experiments of LocalPower: `python -m sims.local_power`."""
