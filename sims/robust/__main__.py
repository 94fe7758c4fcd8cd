"""`python -m sims.robust`."""

from sims.common.report import command
from sims.robust.tables import main

command(main)
