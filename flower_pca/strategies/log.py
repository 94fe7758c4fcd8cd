"""Flower's own logger, so that a run reads as Flower's users know it."""

import logging
from typing import Final

log: Final = logging.getLogger("flwr").log
