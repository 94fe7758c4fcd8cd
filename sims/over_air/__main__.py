"""`python -m sims.over_air`."""

from sims.common.report import command
from sims.over_air.experiments import main

command(main)
