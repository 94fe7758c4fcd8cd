"""Measure what a run reveals about its clients, with the function `audit`."""

from flower_pca.audit.auditing import audit
from flower_pca.audit.found import Audit
from flower_pca.audit.view import Convergence, Leak

__all__ = ["Audit", "Convergence", "Leak", "audit"]
