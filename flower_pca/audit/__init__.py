"""What a run tells about the clients: measured by `audit`."""

from flower_pca.audit.attack import Convergence, Leak
from flower_pca.audit.auditing import audit
from flower_pca.audit.report import Audit

__all__ = ["Audit", "Convergence", "Leak", "audit"]
