"""One client for each algorithm and tracker: a node's operator decides what the node serves."""

from __future__ import annotations

from flower_pca.clients.base import PCAClient


class KrylovClient(PCAClient):
    """Serves krylov only."""

    algorithms = ("krylov",)


class SSIClient(PCAClient):
    """Serves ssi only."""

    algorithms = ("ssi",)


class LocalPowerClient(PCAClient):
    """Serves local_power only."""

    algorithms = ("local_power",)


class FAPSClient(PCAClient):
    """Serves faps only."""

    algorithms = ("faps",)


class UDAClient(PCAClient):
    """Serves uda only."""

    algorithms = ("uda",)


class WDAClient(PCAClient):
    """Serves wda only."""

    algorithms = ("wda",)


class DRSVDClient(PCAClient):
    """Serves dr_svd only."""

    algorithms = ("dr_svd",)


class DistPCAClient(PCAClient):
    """Serves dist_pca only."""

    algorithms = ("dist_pca",)


class FedOAPMClient(PCAClient):
    """Serves fed_oapm only."""

    algorithms = ("fed_oapm",)


class MedianPCAClient(PCAClient):
    """Serves median_pca only."""

    algorithms = ("median_pca",)


class CovarianceClient(PCAClient):
    """Serves covariance only."""

    algorithms = ("covariance",)


class SparsePCAClient(PCAClient):
    """Serves sparse_pca only."""

    algorithms = ("sparse_pca",)


class DCFPCAClient(PCAClient):
    """Serves dcf_pca only."""

    algorithms = ("dcf_pca",)


class ConsensusRPCAClient(PCAClient):
    """Serves consensus_rpca only."""

    algorithms = ("consensus_rpca",)


class PerPCAClient(PCAClient):
    """Serves per_pca only."""

    algorithms = ("per_pca",)


class ExactPerPCAClient(PCAClient):
    """Serves exact_per_pca only."""

    algorithms = ("exact_per_pca",)


class TriplePCAClient(PCAClient):
    """Serves triple_pca only."""

    algorithms = ("triple_pca",)


class STMissClient(PCAClient):
    """Serves st_miss only, from a `Stream`."""

    algorithms = ("st_miss",)


class RobustTrackingClient(PCAClient):
    """Serves robust_tracking only, from a `Stream`."""

    algorithms = ("robust_tracking",)
