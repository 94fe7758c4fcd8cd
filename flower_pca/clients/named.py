"""One client class for each algorithm and tracker. Each class serves only its own algorithm."""

from __future__ import annotations

from flower_pca.clients.base import PCAClient


class KrylovClient(PCAClient):
    """A client that answers only messages of krylov. `PCAClient` documents the parameters."""

    algorithms = ("krylov",)


class SSIClient(PCAClient):
    """A client that answers only messages of ssi. `PCAClient` documents the parameters."""

    algorithms = ("ssi",)


class LocalPowerClient(PCAClient):
    """A client that answers only messages of local_power. `PCAClient` documents the parameters."""

    algorithms = ("local_power",)


class FAPSClient(PCAClient):
    """A client that answers only messages of faps. `PCAClient` documents the parameters."""

    algorithms = ("faps",)


class UDAClient(PCAClient):
    """A client that answers only messages of uda. `PCAClient` documents the parameters."""

    algorithms = ("uda",)


class WDAClient(PCAClient):
    """A client that answers only messages of wda. `PCAClient` documents the parameters."""

    algorithms = ("wda",)


class DRSVDClient(PCAClient):
    """A client that answers only messages of dr_svd. `PCAClient` documents the parameters."""

    algorithms = ("dr_svd",)


class DistPCAClient(PCAClient):
    """A client that answers only messages of dist_pca. `PCAClient` documents the parameters."""

    algorithms = ("dist_pca",)


class FedOAPMClient(PCAClient):
    """A client that answers only messages of fed_oapm. `PCAClient` documents the parameters."""

    algorithms = ("fed_oapm",)


class MedianPCAClient(PCAClient):
    """A client that answers only messages of median_pca. `PCAClient` documents the parameters."""

    algorithms = ("median_pca",)


class CovarianceClient(PCAClient):
    """A client that answers only messages of covariance. `PCAClient` documents the parameters."""

    algorithms = ("covariance",)


class SparsePCAClient(PCAClient):
    """A client that answers only messages of sparse_pca. `PCAClient` documents the parameters."""

    algorithms = ("sparse_pca",)


class DCFPCAClient(PCAClient):
    """A client that answers only messages of dcf_pca. `PCAClient` documents the parameters."""

    algorithms = ("dcf_pca",)


class ConsensusRPCAClient(PCAClient):
    """A client that answers only messages of consensus_rpca. `PCAClient` documents the parameters."""

    algorithms = ("consensus_rpca",)


class PerPCAClient(PCAClient):
    """A client that answers only messages of per_pca. `PCAClient` documents the parameters."""

    algorithms = ("per_pca",)


class ExactPerPCAClient(PCAClient):
    """A client that answers only messages of exact_per_pca. `PCAClient` documents the parameters."""

    algorithms = ("exact_per_pca",)


class TriplePCAClient(PCAClient):
    """A client that answers only messages of triple_pca. `PCAClient` documents the parameters."""

    algorithms = ("triple_pca",)


class STMissClient(PCAClient):
    """A client that answers only messages of st_miss, from a `Stream`. `PCAClient` documents the parameters."""

    algorithms = ("st_miss",)


class RobustTrackingClient(PCAClient):
    """A client that answers only messages of robust_tracking, from a `Stream`. `PCAClient` documents the parameters."""

    algorithms = ("robust_tracking",)
