"""flower_pca: federated principal component analysis for Flower.

Every name is loaded when it is first asked for: a node that serves one algorithm, or a command that draws a picture,
does not wait for the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from flower_pca.base.version import __version__

if TYPE_CHECKING:
    from flower_pca.algorithms.covariance import NoisyCovariance
    from flower_pca.algorithms.dr_svd import DRSVD
    from flower_pca.algorithms.faps import FAPS
    from flower_pca.algorithms.fed_oapm import FedOAPM
    from flower_pca.algorithms.krylov import Krylov
    from flower_pca.algorithms.local_power import LocalPower
    from flower_pca.algorithms.one_shot import UDA, WDA, DistPCA
    from flower_pca.algorithms.personal.exact_per_pca import ExactPerPCA
    from flower_pca.algorithms.personal.per_pca import PerPCA
    from flower_pca.algorithms.personal.result import PersonalResult
    from flower_pca.algorithms.robust.consensus_rpca import ConsensusRPCA
    from flower_pca.algorithms.robust.dcf_pca import DCFPCA
    from flower_pca.algorithms.robust.result import RobustResult
    from flower_pca.algorithms.ssi import SSI
    from flower_pca.base.errors import ConfigError, DataError, FlowerPCAError, NotEnoughNodes, ProtocolError
    from flower_pca.base.history import History, Round
    from flower_pca.base.status import Outcome, Status
    from flower_pca.core.channel import AirChannel
    from flower_pca.core.result import PCAResult
    from flower_pca.core.spent import Spent
    from flower_pca.dp.plan import DP
    from flower_pca.estimator import FederatedPCA, to_sklearn
    from flower_pca.masking import MaskedSums
    from flower_pca.registry import make
    from flower_pca.rows.stream import Stream
    from flower_pca.simulation import Ray, simulate, track
    from flower_pca.tracking.result import TrackingResult
    from flower_pca.tracking.robust_tracking import RobustTracking
    from flower_pca.tracking.st_miss import STMiss


__all__ = [
    "DCFPCA",
    "DP",
    "DRSVD",
    "FAPS",
    "SSI",
    "UDA",
    "WDA",
    "AirChannel",
    "ConfigError",
    "ConsensusRPCA",
    "DataError",
    "DistPCA",
    "ExactPerPCA",
    "FedOAPM",
    "FederatedPCA",
    "FlowerPCAError",
    "History",
    "Krylov",
    "LocalPower",
    "MaskedSums",
    "NoisyCovariance",
    "NotEnoughNodes",
    "Outcome",
    "PCAResult",
    "PerPCA",
    "PersonalResult",
    "ProtocolError",
    "Ray",
    "RobustResult",
    "RobustTracking",
    "Round",
    "STMiss",
    "Spent",
    "Status",
    "Stream",
    "TrackingResult",
    "__version__",
    "make",
    "simulate",
    "to_sklearn",
    "track",
]

_HOMES: Final = {
    "flower_pca.algorithms.robust.consensus_rpca": ("ConsensusRPCA",),
    "flower_pca.algorithms.robust.dcf_pca": ("DCFPCA",),
    "flower_pca.algorithms.dr_svd": ("DRSVD",),
    "flower_pca.algorithms.personal.exact_per_pca": ("ExactPerPCA",),
    "flower_pca.algorithms.faps": ("FAPS",),
    "flower_pca.algorithms.fed_oapm": ("FedOAPM",),
    "flower_pca.algorithms.krylov": ("Krylov",),
    "flower_pca.algorithms.local_power": ("LocalPower",),
    "flower_pca.algorithms.covariance": ("NoisyCovariance",),
    "flower_pca.algorithms.one_shot": (
        "UDA",
        "WDA",
        "DistPCA",
    ),
    "flower_pca.algorithms.personal.per_pca": ("PerPCA",),
    "flower_pca.tracking.robust_tracking": ("RobustTracking",),
    "flower_pca.algorithms.ssi": ("SSI",),
    "flower_pca.tracking.st_miss": ("STMiss",),
    "flower_pca.core.channel": ("AirChannel",),
    "flower_pca.base.errors": (
        "ConfigError",
        "DataError",
        "FlowerPCAError",
        "NotEnoughNodes",
        "ProtocolError",
    ),
    "flower_pca.base.history": (
        "History",
        "Round",
    ),
    "flower_pca.algorithms.personal.result": ("PersonalResult",),
    "flower_pca.dp.plan": ("DP",),
    "flower_pca.core.result": ("PCAResult",),
    "flower_pca.algorithms.robust.result": ("RobustResult",),
    "flower_pca.core.spent": ("Spent",),
    "flower_pca.base.status": (
        "Outcome",
        "Status",
    ),
    "flower_pca.rows.stream": ("Stream",),
    "flower_pca.tracking.result": ("TrackingResult",),
    "flower_pca.estimator": ("FederatedPCA", "to_sklearn"),
    "flower_pca.masking": ("MaskedSums",),
    "flower_pca.registry": ("make",),
    "flower_pca.simulation": (
        "Ray",
        "simulate",
        "track",
    ),
}
_HOME: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(_HOME[name]), name)
    except ImportError as error:
        if _HOME[name] != "flower_pca.estimator":
            raise
        from flower_pca.base.errors import ConfigError

        then = 'Run: pip install "flower-pca[sklearn]"'
        raise ConfigError("scikit-learn", must=f"installed for {name}", got="no such package", then=then) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
