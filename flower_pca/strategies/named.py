"""Strategy classes, one for each algorithm and tracker.

The classes allow editors to complete the names of strategies, and type checkers to check keywords. A
Strategy takes the parameters of its algorithm and the keywords of `PCAStrategy` or `TrackingStrategy`.
Each TypedDict in this module joins these two sets of keywords, because type checkers cannot join them in any
other way. `flower_pca.strategies` adds the signature and the text that `help` shows, both taken from the
algorithm.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from flower_pca import registry
from flower_pca.strategies.pca import PCAKeywords, PCAStrategy, StepKeywords, TrackingStrategy

if TYPE_CHECKING:
    from flower_pca.layers.single import NumbersByClient


class AlgorithmStrategy(PCAStrategy):
    """A `PCAStrategy` for one algorithm. Keywords that are parameters of the algorithm go to the algorithm."""

    name: ClassVar[str]

    def __init__(self, **keywords: Any) -> None:
        own = _take_parameters(self.name, keywords)
        super().__init__(registry.make(self.name, **own), **keywords)


class TrackerStrategy(TrackingStrategy):
    """A `TrackingStrategy` for one tracker. Keywords that are parameters of the tracker go to the tracker."""

    name: ClassVar[str]

    def __init__(self, **keywords: Any) -> None:
        own = _take_parameters(self.name, keywords)
        super().__init__(registry.tracker(self.name, **own), **keywords)


def _take_parameters(name: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """Remove the parameters of the algorithm from the keywords, and return them."""
    return {field.name: keywords.pop(field.name) for field in fields(registry.STAGES[name]) if field.name in keywords}


class _WideKeywords(PCAKeywords, total=False):
    oversample: int


class _IterationKeywords(PCAKeywords, total=False):
    tol: float
    min_rounds: int
    max_rounds: int
    patience: int


class _KrylovKeywords(_IterationKeywords, total=False):
    oversample: int | str
    max_basis: int


class _IterativeKeywords(_WideKeywords, _IterationKeywords, total=False):
    pass


class _LocalPowerKeywords(_IterativeKeywords, total=False):
    local_steps: int
    align: str
    decay: bool
    halve_every: int


class _FAPSKeywords(_IterativeKeywords, total=False):
    inner_steps: int
    inner_tol: float | None
    penalty: str
    beta_0: float
    theta: float
    mu: float


class _DRSVDKeywords(_WideKeywords, total=False):
    rank: int | None


class _DistPCAKeywords(_WideKeywords, total=False):
    local_components: int | None


class _FedOAPMKeywords(_IterativeKeywords, total=False):
    qr_every: int


class _SparsePCAKeywords(_IterativeKeywords, total=False):
    cardinality: int | tuple[int, ...]


class _RobustKeywords(_IterativeKeywords, total=False):
    inner_steps: int
    sigma: float | None
    ridge: float


class _DCFPCAKeywords(_RobustKeywords, total=False):
    local_steps: int
    eta: float | None
    step: str
    anneal: bool | None
    threshold: float


class _ConsensusRPCAKeywords(_RobustKeywords, total=False):
    gamma: float
    noise: float | str
    restarts: int


class _PersonalizedKeywords(_IterativeKeywords, total=False):
    local_components: int | NumbersByClient | str
    weights: str
    start_rounds: int
    collect: bool
    given: Any


class _PerPCAKeywords(_PersonalizedKeywords, total=False):
    choice: int
    retraction: str
    step: float | None
    eta: float | None
    local_init: str


class _ExactPerPCAKeywords(_PersonalizedKeywords, total=False):
    acceleration: str
    local_steps: int
    gain_tol: float


class _TriplePCAKeywords(_ExactPerPCAKeywords, total=False):
    threshold: float
    inner_steps: int


class _STMissKeywords(StepKeywords, total=False):
    refine: bool
    reuse: int
    detect: bool
    threshold: float | None
    alarm_rate: float
    update_length: int
    monitor: bool
    solver: str
    products: int
    first_products: int
    qr_every: int
    tol: float
    oversample: int
    keep: int


class _RobustTrackingKeywords(_STMissKeywords, total=False):
    smallest_outlier: float | None


class Krylov(AlgorithmStrategy):
    """PCA by block Krylov iteration, which needs few rounds. See `flower_pca.Krylov` for the parameters."""

    name = "krylov"

    def __init__(self, **keywords: Unpack[_KrylovKeywords]) -> None:
        super().__init__(**keywords)


class SSI(AlgorithmStrategy):
    """PCA by subspace iteration, for noisy sums and changing clients. See `flower_pca.SSI` for the parameters."""

    name = "ssi"

    def __init__(self, **keywords: Unpack[_IterativeKeywords]) -> None:
        super().__init__(**keywords)


class LocalPower(AlgorithmStrategy):
    """Approximate PCA by several local power steps per round. See `flower_pca.LocalPower` for the parameters."""

    name = "local_power"

    def __init__(self, **keywords: Unpack[_LocalPowerKeywords]) -> None:
        super().__init__(**keywords)


class FAPS(AlgorithmStrategy):
    """PCA without sending products of a client's covariance matrix. See `flower_pca.FAPS` for the parameters."""

    name = "faps"

    def __init__(self, **keywords: Unpack[_FAPSKeywords]) -> None:
        super().__init__(**keywords)


class UDA(AlgorithmStrategy):
    """PCA by averaging the clients' subspaces, in one round. See `flower_pca.UDA` for the parameters."""

    name = "uda"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class WDA(AlgorithmStrategy):
    """PCA by averaging the clients' subspaces, weighted by variance, in one round. See `flower_pca.WDA`."""

    name = "wda"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class DRSVD(AlgorithmStrategy):
    """PCA by a randomized SVD in three rounds. See `flower_pca.DRSVD` for the parameters."""

    name = "dr_svd"

    def __init__(self, **keywords: Unpack[_DRSVDKeywords]) -> None:
        super().__init__(**keywords)


class DistPCA(AlgorithmStrategy):
    """PCA of the clients' stacked components, in one round. See `flower_pca.DistPCA` for the parameters."""

    name = "dist_pca"

    def __init__(self, **keywords: Unpack[_DistPCAKeywords]) -> None:
        super().__init__(**keywords)


class FedOAPM(AlgorithmStrategy):
    """PCA by power iterations over a noisy channel. See `flower_pca.FedOAPM` for the parameters."""

    name = "fed_oapm"

    def __init__(self, **keywords: Unpack[_FedOAPMKeywords]) -> None:
        super().__init__(**keywords)


class MedianPCA(AlgorithmStrategy):
    """PCA that tolerates dishonest clients. See `flower_pca.MedianPCA` for the parameters."""

    name = "median_pca"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class Covariance(AlgorithmStrategy):
    """PCA of the sum of all covariance matrices, in one round. See `flower_pca.Covariance` for the parameters."""

    name = "covariance"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class SparsePCA(AlgorithmStrategy):
    """Sparse PCA, whose components use few columns each. See `flower_pca.SparsePCA` for the parameters."""

    name = "sparse_pca"

    def __init__(self, **keywords: Unpack[_SparsePCAKeywords]) -> None:
        super().__init__(**keywords)


class DCFPCA(AlgorithmStrategy):
    """Robust PCA by gradient steps, as in the paper. See `flower_pca.DCFPCA` for the parameters."""

    name = "dcf_pca"

    def __init__(self, **keywords: Unpack[_DCFPCAKeywords]) -> None:
        super().__init__(**keywords)


class ConsensusRPCA(AlgorithmStrategy):
    """Robust PCA for rows with some wrong entries. See `flower_pca.ConsensusRPCA` for the parameters."""

    name = "consensus_rpca"

    def __init__(self, **keywords: Unpack[_ConsensusRPCAKeywords]) -> None:
        super().__init__(**keywords)


class PerPCA(AlgorithmStrategy):
    """PCA with shared and personal components, by gradient steps. See `flower_pca.PerPCA` for the parameters."""

    name = "per_pca"

    def __init__(self, **keywords: Unpack[_PerPCAKeywords]) -> None:
        super().__init__(**keywords)


class ExactPerPCA(AlgorithmStrategy):
    """PCA with shared and personal components, in few rounds. See `flower_pca.ExactPerPCA` for the parameters."""

    name = "exact_per_pca"

    def __init__(self, **keywords: Unpack[_ExactPerPCAKeywords]) -> None:
        super().__init__(**keywords)


class TriplePCA(AlgorithmStrategy):
    """PCA with shared and personal components, for rows with wrong entries. See `flower_pca.TriplePCA`."""

    name = "triple_pca"

    def __init__(self, **keywords: Unpack[_TriplePCAKeywords]) -> None:
        super().__init__(**keywords)


class STMiss(TrackerStrategy):
    """Tracking of a subspace from rows with missing values. See `flower_pca.STMiss` for the parameters."""

    name = "st_miss"

    def __init__(self, **keywords: Unpack[_STMissKeywords]) -> None:
        super().__init__(**keywords)


class RobustTracking(TrackerStrategy):
    """Tracking of a subspace from rows with wrong entries. See `flower_pca.RobustTracking` for the parameters."""

    name = "robust_tracking"

    def __init__(self, **keywords: Unpack[_RobustTrackingKeywords]) -> None:
        super().__init__(**keywords)
