"""`python -m sims.local_power`."""

from sims.common.report import command
from sims.local_power.tables import main

command(main)
