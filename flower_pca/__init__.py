"""flower_pca: federated principal component analysis for Flower.

Every public name is imported when it is first used, so that a node that serves one algorithm, or a command that
draws a picture, does not import everything else. The registry lists the algorithms.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from flower_pca.base.version import __version__ as __version__

if TYPE_CHECKING:
    from flower_pca.algorithms.covariance import Covariance as Covariance
    from flower_pca.algorithms.dr_svd import DRSVD as DRSVD
    from flower_pca.algorithms.faps import FAPS as FAPS
    from flower_pca.algorithms.fed_oapm import FedOAPM as FedOAPM
    from flower_pca.algorithms.krylov import Krylov as Krylov
    from flower_pca.algorithms.local_power import LocalPower as LocalPower
    from flower_pca.algorithms.median_pca import MedianPCA as MedianPCA
    from flower_pca.algorithms.one_shot import UDA as UDA
    from flower_pca.algorithms.one_shot import WDA as WDA
    from flower_pca.algorithms.one_shot import DistPCA as DistPCA
    from flower_pca.algorithms.personal.exact_per_pca import ExactPerPCA as ExactPerPCA
    from flower_pca.algorithms.personal.per_pca import PerPCA as PerPCA
    from flower_pca.algorithms.personal.triple_pca import TriplePCA as TriplePCA
    from flower_pca.algorithms.robust.consensus_rpca import ConsensusRPCA as ConsensusRPCA
    from flower_pca.algorithms.robust.dcf_pca import DCFPCA as DCFPCA
    from flower_pca.algorithms.sparse_pca import SparsePCA as SparsePCA
    from flower_pca.algorithms.ssi import SSI as SSI
    from flower_pca.base.errors import ConfigError as ConfigError
    from flower_pca.base.errors import DataError as DataError
    from flower_pca.base.errors import FlowerPCAError as FlowerPCAError
    from flower_pca.base.errors import NotEnoughNodes as NotEnoughNodes
    from flower_pca.base.errors import ProtocolError as ProtocolError
    from flower_pca.base.history import History as History
    from flower_pca.base.history import Outcome as Outcome
    from flower_pca.base.history import Round as Round
    from flower_pca.base.history import Status as Status
    from flower_pca.core.config import PCAConfig as PCAConfig
    from flower_pca.dp.spent import Spent as Spent
    from flower_pca.estimator import FederatedPCA as FederatedPCA
    from flower_pca.estimator import to_sklearn as to_sklearn
    from flower_pca.layers.air import AirChannel as AirChannel
    from flower_pca.masking import MaskedSums as MaskedSums
    from flower_pca.names.table import Table as Table
    from flower_pca.names.table import cells as cells
    from flower_pca.registry import make as make
    from flower_pca.results.pca import PCAResult as PCAResult
    from flower_pca.results.personal import PersonalResult as PersonalResult
    from flower_pca.results.personal import TripleResult as TripleResult
    from flower_pca.results.projection import Projection as Projection
    from flower_pca.results.projection import Scaling as Scaling
    from flower_pca.results.robust import RobustResult as RobustResult
    from flower_pca.results.steps import TrackingResult as TrackingResult
    from flower_pca.rows.stream import Stream as Stream
    from flower_pca.settings.budget import DP as DP
    from flower_pca.simulation import Ray as Ray
    from flower_pca.simulation import from_frame as from_frame
    from flower_pca.simulation import simulate as simulate
    from flower_pca.simulation import track as track
    from flower_pca.tracking.st_miss import RobustTracking as RobustTracking
    from flower_pca.tracking.st_miss import STMiss as STMiss
    from flower_pca.vertical.result import ColumnsResult as ColumnsResult

_HOMES: Final = {
    "flower_pca.results.personal": ("PersonalResult", "TripleResult"),
    "flower_pca.results.robust": ("RobustResult",),
    "flower_pca.base.errors": ("ConfigError", "DataError", "FlowerPCAError", "NotEnoughNodes", "ProtocolError"),
    "flower_pca.base.history": ("History", "Outcome", "Round", "Status"),
    "flower_pca.layers.air": ("AirChannel",),
    "flower_pca.core.config": ("PCAConfig",),
    "flower_pca.results.pca": ("PCAResult",),
    "flower_pca.dp.spent": ("Spent",),
    "flower_pca.settings.budget": ("DP",),
    "flower_pca.estimator": ("FederatedPCA", "to_sklearn"),
    "flower_pca.masking": ("MaskedSums",),
    "flower_pca.registry": ("make",),
    "flower_pca.results.projection": ("Projection", "Scaling"),
    "flower_pca.names.table": ("Table", "cells"),
    "flower_pca.rows.stream": ("Stream",),
    "flower_pca.simulation": ("Ray", "from_frame", "simulate", "track"),
    "flower_pca.vertical.result": ("ColumnsResult",),
    "flower_pca.results.steps": ("TrackingResult",),
}
_HOME: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _names()
    if name in _HOME:
        found = _load(name)
    elif name[:1].isupper() and name in (classes := importlib.import_module("flower_pca.registry").public_classes()):
        found = classes[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _load(name: str) -> Any:
    try:
        return getattr(importlib.import_module(_HOME[name]), name)
    except ImportError as error:
        if _HOME[name] != "flower_pca.estimator":
            raise
        from flower_pca.base import errors

        raise errors.not_installed("scikit-learn", f"for {name}") from error


def _names() -> list[str]:
    """Return all public names, sorted: constants and acronyms first, then classes, then functions."""
    every = ["__version__", *_HOME, *importlib.import_module("flower_pca.registry").public_classes()]
    # `from flower_pca import *` imports all of these names, so names that need scikit-learn are left out without it.
    if not importlib.import_module("flower_pca.base.errors").is_installed("scikit-learn"):
        every = [name for name in every if _HOME.get(name) != "flower_pca.estimator"]
    return sorted(every, key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})
