"""One client for each algorithm and tracker: a node's operator decides what the node serves.

Written from the registry by .ci/classes.py.
"""

from __future__ import annotations

from flower_pca.clients.base import PCAClient


class KrylovClient(PCAClient):
    """Serves krylov only.

    One product C B a round, and nothing that was learnt is thrown away.
    """

    algorithms = ("krylov",)


class SSIClient(PCAClient):
    """Serves ssi only.

    Z <- orth(sum C_i Z).
    """

    algorithms = ("ssi",)


class LocalPowerClient(PCAClient):
    """Serves local_power only.

    q local power steps a round: X_i <- orth(C_i X_i) q - 1 times, then Z <- orth(sum C_iX_iO_i).
    """

    algorithms = ("local_power",)


class FAPSClient(PCAClient):
    """Serves faps only.

    Every client keeps a subspace X_i of its own and a low-rank multiplier; the server only sums.
    """

    algorithms = ("faps",)


class UDAClient(PCAClient):
    """Serves uda only.

    Unweighted distributed averaging: the leading eigenvectors of (1/N) sum V_i V_i', V_i the client's own top ones.
    """

    algorithms = ("uda",)


class WDAClient(PCAClient):
    """Serves wda only.

    Weighted distributed averaging: UDA with V_i S_i V_i', S_i leading eigenvalues of C_i / n_i.
    """

    algorithms = ("wda",)


class DRSVDClient(PCAClient):
    """Serves dr_svd only.

    The range of Y = A A'A Omega (A: all rows stacked), an orthonormal Q of it, then the SVD of the small B = Q'A.
    """

    algorithms = ("dr_svd",)


class DistPCAClient(PCAClient):
    """Serves dist_pca only.

    The leading left singular vectors of the clients' own top components, stacked; of more than wanted, if asked.
    """

    algorithms = ("dist_pca",)


class FedOAPMClient(PCAClient):
    """Serves fed_oapm only.

    U_l = qr(sum_k C_k U_{l-1} + W_l), W_l the noise of the channel (`AirChannel`).
    """

    algorithms = ("fed_oapm",)


class MedianPCAClient(PCAClient):
    """Serves median_pca only.

    Leading eigenvectors of the geometric median of projections, argmin_M sum ||V_i V_i' - M||.
    """

    algorithms = ("median_pca",)


class CovarianceClient(PCAClient):
    """Serves covariance only.

    Every client sends C_i = X_i'X_i once; the server adds them up and takes the eigenvectors.
    """

    algorithms = ("covariance",)


class SparsePCAClient(PCAClient):
    """Serves sparse_pca only.

    x <- the largest entries of C x, for every component at once, each beside those before it.
    """

    algorithms = ("sparse_pca",)


class DCFPCAClient(PCAClient):
    """Serves dcf_pca only.

    Rows = V_i U' + S_i, U common, S_i sparse: every client takes gradient steps on its own U_i, the server averages.
    """

    algorithms = ("dcf_pca",)


class ConsensusRPCAClient(PCAClient):
    """Serves consensus_rpca only.

    Rows = V_i U' + S_i, U common, S_i sparse, recovered exactly: sums only, no step size, a proof.
    """

    algorithms = ("consensus_rpca",)


class PerPCAClient(PCAClient):
    """Serves per_pca only.

    Algorithm 2 of the paper: clients take a gradient step on U and V_i; the server averages U_i.
    """

    algorithms = ("per_pca",)


class ExactPerPCAClient(PCAClient):
    """Serves exact_per_pca only.

    Each client solves for V_i exactly; the server maximises what is linear in U.
    """

    algorithms = ("exact_per_pca",)


class TriplePCAClient(PCAClient):
    """Serves triple_pca only.

    Rows are shared, own and sparse parts and noise: `ExactPerPCA` on rows less what is far.
    """

    algorithms = ("triple_pca",)


class STMissClient(PCAClient):
    """Serves st_miss only, from a `Stream`.

    P_j = the r leading left singular vectors of batch j, completed with the basis before it.
    """

    algorithms = ("st_miss",)


class RobustTrackingClient(PCAClient):
    """Serves robust_tracking only, from a `Stream`.

    STMiss on rows of which a sparse, unknown part is corrupted: y_t = l_t + g_t where observed.
    """

    algorithms = ("robust_tracking",)
