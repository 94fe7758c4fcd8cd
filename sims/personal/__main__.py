"""`python -m sims.personal`."""

from sims.common.report import command
from sims.personal.experiments import main

command(main)
