"""One client for each algorithm and tracker: a node's operator decides what the node serves."""

from __future__ import annotations

from flower_pca.clients.base import PCAClient


class KrylovClient(PCAClient):
    """Answer messages of krylov only; `PCAClient` has the parameters."""

    algorithms = ("krylov",)


class SSIClient(PCAClient):
    """Answer messages of ssi only; `PCAClient` has the parameters."""

    algorithms = ("ssi",)


class LocalPowerClient(PCAClient):
    """Answer messages of local_power only; `PCAClient` has the parameters."""

    algorithms = ("local_power",)


class FAPSClient(PCAClient):
    """Answer messages of faps only; `PCAClient` has the parameters."""

    algorithms = ("faps",)


class UDAClient(PCAClient):
    """Answer messages of uda only; `PCAClient` has the parameters."""

    algorithms = ("uda",)


class WDAClient(PCAClient):
    """Answer messages of wda only; `PCAClient` has the parameters."""

    algorithms = ("wda",)


class DRSVDClient(PCAClient):
    """Answer messages of dr_svd only; `PCAClient` has the parameters."""

    algorithms = ("dr_svd",)


class DistPCAClient(PCAClient):
    """Answer messages of dist_pca only; `PCAClient` has the parameters."""

    algorithms = ("dist_pca",)


class FedOAPMClient(PCAClient):
    """Answer messages of fed_oapm only; `PCAClient` has the parameters."""

    algorithms = ("fed_oapm",)


class MedianPCAClient(PCAClient):
    """Answer messages of median_pca only; `PCAClient` has the parameters."""

    algorithms = ("median_pca",)


class CovarianceClient(PCAClient):
    """Answer messages of covariance only; `PCAClient` has the parameters."""

    algorithms = ("covariance",)


class SparsePCAClient(PCAClient):
    """Answer messages of sparse_pca only; `PCAClient` has the parameters."""

    algorithms = ("sparse_pca",)


class DCFPCAClient(PCAClient):
    """Answer messages of dcf_pca only; `PCAClient` has the parameters."""

    algorithms = ("dcf_pca",)


class ConsensusRPCAClient(PCAClient):
    """Answer messages of consensus_rpca only; `PCAClient` has the parameters."""

    algorithms = ("consensus_rpca",)


class PerPCAClient(PCAClient):
    """Answer messages of per_pca only; `PCAClient` has the parameters."""

    algorithms = ("per_pca",)


class ExactPerPCAClient(PCAClient):
    """Answer messages of exact_per_pca only; `PCAClient` has the parameters."""

    algorithms = ("exact_per_pca",)


class TriplePCAClient(PCAClient):
    """Answer messages of triple_pca only; `PCAClient` has the parameters."""

    algorithms = ("triple_pca",)


class STMissClient(PCAClient):
    """Answer messages of st_miss only, from a `Stream`; `PCAClient` has the parameters."""

    algorithms = ("st_miss",)


class RobustTrackingClient(PCAClient):
    """Answer messages of robust_tracking only, from a `Stream`; `PCAClient` has the parameters."""

    algorithms = ("robust_tracking",)
