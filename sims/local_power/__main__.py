"""`python -m sims.local_power`."""

from sims.common.report import command
from sims.local_power.experiments import main

command(main)
