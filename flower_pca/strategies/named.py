"""One Strategy per algorithm: its hyper-parameters beside the few of the strategy, with a signature to read."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, ClassVar

from flower_pca import registry
from flower_pca.base import checks
from flower_pca.strategies.base import FlowerStrategy
from flower_pca.strategies.pca import PCAStrategy
from flower_pca.strategies.tracking import TrackingStrategy

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _signature(base: type[FlowerStrategy[Any]], stage: type[Any]) -> inspect.Signature:
    """The parameters of the strategy but its first, the stage, and those of the stage."""
    own = [inspect.Parameter(f.name, _KEYWORD, default=f.default, annotation=f.type) for f in fields(stage)]
    return inspect.Signature([*list(inspect.signature(base).parameters.values())[1:], *own])


class _Named(PCAStrategy):
    """A PCAStrategy of one algorithm; its signature is put together from both when the class is made."""

    name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = _signature(PCAStrategy, registry.ALGORITHMS[cls.name])  # type: ignore[attr-defined]

    def __init__(self, **parameters: Any) -> None:
        known = inspect.signature(type(self)).parameters
        checks.parameters(type(self).__name__, parameters, known)
        hyper = {f.name for f in fields(registry.ALGORITHMS[self.name])}
        algorithm = registry.make(self.name, **{n: v for n, v in parameters.items() if n in hyper})
        super().__init__(algorithm, **{n: v for n, v in parameters.items() if n not in hyper})


class Krylov(_Named):
    """Krylov as a Strategy: see `flower_pca.Krylov` and `PCAStrategy` for the parameters."""

    name = "krylov"


class SSI(_Named):
    """SSI as a Strategy: see `flower_pca.SSI` and `PCAStrategy` for the parameters."""

    name = "ssi"


class LocalPower(_Named):
    """LocalPower as a Strategy: see `flower_pca.LocalPower` and `PCAStrategy` for the parameters."""

    name = "local_power"


class FAPS(_Named):
    """FAPS as a Strategy: see `flower_pca.FAPS` and `PCAStrategy` for the parameters."""

    name = "faps"


class UDA(_Named):
    """UDA as a Strategy: see `flower_pca.UDA` and `PCAStrategy` for the parameters."""

    name = "uda"


class WDA(_Named):
    """WDA as a Strategy: see `flower_pca.WDA` and `PCAStrategy` for the parameters."""

    name = "wda"


class DRSVD(_Named):
    """DR-SVD as a Strategy: see `flower_pca.DRSVD` and `PCAStrategy` for the parameters."""

    name = "dr_svd"


class FedOAPM(_Named):
    """FedOAPM as a Strategy: see `flower_pca.FedOAPM` and `PCAStrategy` for the parameters."""

    name = "fed_oapm"


class DistPCA(_Named):
    """DistPCA as a Strategy: see `flower_pca.DistPCA` and `PCAStrategy` for the parameters."""

    name = "dist_pca"


class NoisyCovariance(_Named):
    """Noisy covariance as a Strategy: see `flower_pca.NoisyCovariance` and `PCAStrategy` for the parameters."""

    name = "noisy_covariance"


class DCFPCA(_Named):
    """DCFPCA as a Strategy: see `flower_pca.DCFPCA` and `PCAStrategy` for the parameters."""

    name = "dcf_pca"


class ConsensusRPCA(_Named):
    """ConsensusRPCA as a Strategy: see `flower_pca.ConsensusRPCA` and `PCAStrategy` for the parameters."""

    name = "consensus_rpca"


class PerPCA(_Named):
    """PerPCA as a Strategy: see `flower_pca.PerPCA` and `PCAStrategy` for the parameters."""

    name = "per_pca"


class ExactPerPCA(_Named):
    """ExactPerPCA as a Strategy: see `flower_pca.ExactPerPCA` and `PCAStrategy` for the parameters."""

    name = "exact_per_pca"


class _NamedTracker(TrackingStrategy):
    """A TrackingStrategy of one tracker, likewise."""

    name: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = _signature(TrackingStrategy, registry.TRACKERS[cls.name])  # type: ignore[attr-defined]

    def __init__(self, **parameters: Any) -> None:
        checks.parameters(type(self).__name__, parameters, inspect.signature(type(self)).parameters)
        hyper = {f.name for f in fields(registry.TRACKERS[self.name])}
        tracker = registry.tracker(self.name, **{n: v for n, v in parameters.items() if n in hyper})
        super().__init__(tracker, **{n: v for n, v in parameters.items() if n not in hyper})


class STMiss(_NamedTracker):
    """STMiss as a Strategy: see `flower_pca.STMiss` and `TrackingStrategy` for the parameters."""

    name = "st_miss"


class RobustTracking(_NamedTracker):
    """RobustTracking as a Strategy: see `flower_pca.RobustTracking` and `TrackingStrategy` for the parameters."""

    name = "robust_tracking"
