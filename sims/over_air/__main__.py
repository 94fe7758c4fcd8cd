"""`python -m sims.over_air`."""

from sims.common.report import command
from sims.over_air.figures import main

command(main)
