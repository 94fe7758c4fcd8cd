"""What a run tells about the clients: measured by `audit`."""

from flower_pca.audit.auditing import audit
from flower_pca.audit.found import Audit
from flower_pca.audit.view import Convergence, Leak

__all__ = ["Audit", "Convergence", "Leak", "audit"]
