"""One client for each algorithm and tracker: a node's operator decides what the node serves."""

from __future__ import annotations

from flower_pca.clients.base import PCAClient


class KrylovClient(PCAClient):
    """Answer messages of krylov only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import KrylovClient
    >>> client = KrylovClient(np.eye(60, 6))
    """

    algorithms = ("krylov",)


class SSIClient(PCAClient):
    """Answer messages of ssi only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import SSIClient
    >>> client = SSIClient(np.eye(60, 6))
    """

    algorithms = ("ssi",)


class LocalPowerClient(PCAClient):
    """Answer messages of local_power only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import LocalPowerClient
    >>> client = LocalPowerClient(np.eye(60, 6))
    """

    algorithms = ("local_power",)


class FAPSClient(PCAClient):
    """Answer messages of faps only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import FAPSClient
    >>> client = FAPSClient(np.eye(60, 6))
    """

    algorithms = ("faps",)


class UDAClient(PCAClient):
    """Answer messages of uda only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import UDAClient
    >>> client = UDAClient(np.eye(60, 6))
    """

    algorithms = ("uda",)


class WDAClient(PCAClient):
    """Answer messages of wda only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import WDAClient
    >>> client = WDAClient(np.eye(60, 6))
    """

    algorithms = ("wda",)


class DRSVDClient(PCAClient):
    """Answer messages of dr_svd only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import DRSVDClient
    >>> client = DRSVDClient(np.eye(60, 6))
    """

    algorithms = ("dr_svd",)


class DistPCAClient(PCAClient):
    """Answer messages of dist_pca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import DistPCAClient
    >>> client = DistPCAClient(np.eye(60, 6))
    """

    algorithms = ("dist_pca",)


class FedOAPMClient(PCAClient):
    """Answer messages of fed_oapm only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import FedOAPMClient
    >>> client = FedOAPMClient(np.eye(60, 6))
    """

    algorithms = ("fed_oapm",)


class MedianPCAClient(PCAClient):
    """Answer messages of median_pca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import MedianPCAClient
    >>> client = MedianPCAClient(np.eye(60, 6))
    """

    algorithms = ("median_pca",)


class CovarianceClient(PCAClient):
    """Answer messages of covariance only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import CovarianceClient
    >>> client = CovarianceClient(np.eye(60, 6))
    """

    algorithms = ("covariance",)


class SparsePCAClient(PCAClient):
    """Answer messages of sparse_pca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import SparsePCAClient
    >>> client = SparsePCAClient(np.eye(60, 6))
    """

    algorithms = ("sparse_pca",)


class DCFPCAClient(PCAClient):
    """Answer messages of dcf_pca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import DCFPCAClient
    >>> client = DCFPCAClient(np.eye(60, 6))
    """

    algorithms = ("dcf_pca",)


class ConsensusRPCAClient(PCAClient):
    """Answer messages of consensus_rpca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import ConsensusRPCAClient
    >>> client = ConsensusRPCAClient(np.eye(60, 6))
    """

    algorithms = ("consensus_rpca",)


class PerPCAClient(PCAClient):
    """Answer messages of per_pca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import PerPCAClient
    >>> client = PerPCAClient(np.eye(60, 6))
    """

    algorithms = ("per_pca",)


class ExactPerPCAClient(PCAClient):
    """Answer messages of exact_per_pca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import ExactPerPCAClient
    >>> client = ExactPerPCAClient(np.eye(60, 6))
    """

    algorithms = ("exact_per_pca",)


class TriplePCAClient(PCAClient):
    """Answer messages of triple_pca only; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca.clients import TriplePCAClient
    >>> client = TriplePCAClient(np.eye(60, 6))
    """

    algorithms = ("triple_pca",)


class STMissClient(PCAClient):
    """Answer messages of st_miss only, from a `Stream`; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Stream
    >>> from flower_pca.clients import STMissClient
    >>> client = STMissClient(Stream(np.eye(60, 6), batch=30))
    """

    algorithms = ("st_miss",)


class RobustTrackingClient(PCAClient):
    """Answer messages of robust_tracking only, from a `Stream`; `PCAClient` has the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Stream
    >>> from flower_pca.clients import RobustTrackingClient
    >>> client = RobustTrackingClient(Stream(np.eye(60, 6), batch=30))
    """

    algorithms = ("robust_tracking",)
