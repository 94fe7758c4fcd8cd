"""`python -m sims.robust`."""

from sims.common.report import command
from sims.robust.experiments import main

command(main)
