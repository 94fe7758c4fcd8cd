"""Flower's client side: PCAClient, one named client per algorithm, the rules of a node, and ready ClientApps."""

from flower_pca.clients.app import client_app, register
from flower_pca.clients.base import PCAClient
from flower_pca.clients.named import (
    ConsensusRPCAClient,
    DCFPCAClient,
    DistPCAClient,
    DRSVDClient,
    ExactPerPCAClient,
    FAPSClient,
    FedOAPMClient,
    KrylovClient,
    LocalPowerClient,
    NoisyCovarianceClient,
    PerPCAClient,
    RobustTrackingClient,
    SSIClient,
    STMissClient,
    UDAClient,
    WDAClient,
)
from flower_pca.clients.rules import Rules

__all__ = [
    "ConsensusRPCAClient",
    "DCFPCAClient",
    "DRSVDClient",
    "DistPCAClient",
    "ExactPerPCAClient",
    "FAPSClient",
    "FedOAPMClient",
    "KrylovClient",
    "LocalPowerClient",
    "NoisyCovarianceClient",
    "PCAClient",
    "PerPCAClient",
    "RobustTrackingClient",
    "Rules",
    "SSIClient",
    "STMissClient",
    "UDAClient",
    "WDAClient",
    "client_app",
    "register",
]
