"""Flower's server side: PCAStrategy and TrackingStrategy, and one named Strategy per algorithm."""

from flower_pca.strategies.base import arrays_of
from flower_pca.strategies.named import (
    DCFPCA,
    DRSVD,
    FAPS,
    SSI,
    UDA,
    WDA,
    ConsensusRPCA,
    DistPCA,
    ExactPerPCA,
    FedOAPM,
    Krylov,
    LocalPower,
    NoisyCovariance,
    PerPCA,
    RobustTracking,
    STMiss,
)
from flower_pca.strategies.pca import PCAStrategy
from flower_pca.strategies.tracking import TrackingStrategy

__all__ = [
    "DCFPCA",
    "DRSVD",
    "FAPS",
    "SSI",
    "UDA",
    "WDA",
    "ConsensusRPCA",
    "DistPCA",
    "ExactPerPCA",
    "FedOAPM",
    "Krylov",
    "LocalPower",
    "NoisyCovariance",
    "PCAStrategy",
    "PerPCA",
    "RobustTracking",
    "STMiss",
    "TrackingStrategy",
    "arrays_of",
]
