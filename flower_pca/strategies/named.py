"""One Strategy for each algorithm and tracker, so that an editor completes its name and a type checker its keywords.

A Strategy takes the parameters of its algorithm and the keywords of `PCAStrategy` or
`TrackingStrategy`. Type checkers read them from the TypedDicts below, because they can join two sets
of keywords in no other way. `flower_pca.strategies` adds what `help` shows, from the algorithm itself.
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
        own = _taken(self.name, keywords)
        super().__init__(registry.make(self.name, **own), **keywords)


class TrackerStrategy(TrackingStrategy):
    """A `TrackingStrategy` for one tracker. Keywords that are parameters of the tracker go to the tracker."""

    name: ClassVar[str]

    def __init__(self, **keywords: Any) -> None:
        own = _taken(self.name, keywords)
        super().__init__(registry.tracker(self.name, **own), **keywords)


def _taken(name: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """Take the parameters of the algorithm with this name out of the keywords."""
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
    """PCA by block Krylov iteration. It needs the fewest rounds; `flower_pca.Krylov` has the parameters."""

    name = "krylov"

    def __init__(self, **keywords: Unpack[_KrylovKeywords]) -> None:
        super().__init__(**keywords)


class SSI(AlgorithmStrategy):
    """PCA by subspace iteration, for noisy sums and changing clients; `flower_pca.SSI` has the parameters."""

    name = "ssi"

    def __init__(self, **keywords: Unpack[_IterativeKeywords]) -> None:
        super().__init__(**keywords)


class LocalPower(AlgorithmStrategy):
    """Several local power steps per round, for a rough answer; `flower_pca.LocalPower` has the parameters."""

    name = "local_power"

    def __init__(self, **keywords: Unpack[_LocalPowerKeywords]) -> None:
        super().__init__(**keywords)


class FAPS(AlgorithmStrategy):
    """PCA without sending a product of a client's covariance; `flower_pca.FAPS` has the parameters."""

    name = "faps"

    def __init__(self, **keywords: Unpack[_FAPSKeywords]) -> None:
        super().__init__(**keywords)


class UDA(AlgorithmStrategy):
    """The average of the clients' own subspaces, in one round; `flower_pca.UDA` has the parameters."""

    name = "uda"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class WDA(AlgorithmStrategy):
    """Their average weighted by variance, in one round; `flower_pca.WDA` has the parameters."""

    name = "wda"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class DRSVD(AlgorithmStrategy):
    """A randomized SVD in three rounds; `flower_pca.DRSVD` has the parameters."""

    name = "dr_svd"

    def __init__(self, **keywords: Unpack[_DRSVDKeywords]) -> None:
        super().__init__(**keywords)


class DistPCA(AlgorithmStrategy):
    """The clients' own components stacked, in one round; `flower_pca.DistPCA` has the parameters."""

    name = "dist_pca"

    def __init__(self, **keywords: Unpack[_DistPCAKeywords]) -> None:
        super().__init__(**keywords)


class FedOAPM(AlgorithmStrategy):
    """Power iterations over a noisy channel; `flower_pca.FedOAPM` has the parameters."""

    name = "fed_oapm"

    def __init__(self, **keywords: Unpack[_FedOAPMKeywords]) -> None:
        super().__init__(**keywords)


class MedianPCA(AlgorithmStrategy):
    """PCA that withstands dishonest clients; `flower_pca.MedianPCA` has the parameters."""

    name = "median_pca"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class Covariance(AlgorithmStrategy):
    """The sum of all covariance matrices, in one round; `flower_pca.Covariance` has the parameters."""

    name = "covariance"

    def __init__(self, **keywords: Unpack[_WideKeywords]) -> None:
        super().__init__(**keywords)


class SparsePCA(AlgorithmStrategy):
    """Components that use few columns each; `flower_pca.SparsePCA` has the parameters."""

    name = "sparse_pca"

    def __init__(self, **keywords: Unpack[_SparsePCAKeywords]) -> None:
        super().__init__(**keywords)


class DCFPCA(AlgorithmStrategy):
    """Robust PCA by gradient steps, as in the paper; `flower_pca.DCFPCA` has the parameters."""

    name = "dcf_pca"

    def __init__(self, **keywords: Unpack[_DCFPCAKeywords]) -> None:
        super().__init__(**keywords)


class ConsensusRPCA(AlgorithmStrategy):
    """Robust PCA of rows with single wrong entries; `flower_pca.ConsensusRPCA` has the parameters."""

    name = "consensus_rpca"

    def __init__(self, **keywords: Unpack[_ConsensusRPCAKeywords]) -> None:
        super().__init__(**keywords)


class PerPCA(AlgorithmStrategy):
    """Shared and personal components by gradient steps; `flower_pca.PerPCA` has the parameters."""

    name = "per_pca"

    def __init__(self, **keywords: Unpack[_PerPCAKeywords]) -> None:
        super().__init__(**keywords)


class ExactPerPCA(AlgorithmStrategy):
    """Shared and personal components in few rounds; `flower_pca.ExactPerPCA` has the parameters."""

    name = "exact_per_pca"

    def __init__(self, **keywords: Unpack[_ExactPerPCAKeywords]) -> None:
        super().__init__(**keywords)


class TriplePCA(AlgorithmStrategy):
    """Shared and personal components beside wrong entries; `flower_pca.TriplePCA` has the parameters."""

    name = "triple_pca"

    def __init__(self, **keywords: Unpack[_TriplePCAKeywords]) -> None:
        super().__init__(**keywords)


class STMiss(TrackerStrategy):
    """Follow a subspace through rows with missing values; `flower_pca.STMiss` has the parameters."""

    name = "st_miss"

    def __init__(self, **keywords: Unpack[_STMissKeywords]) -> None:
        super().__init__(**keywords)


class RobustTracking(TrackerStrategy):
    """Follow a subspace through rows with wrong entries; `flower_pca.RobustTracking` has the parameters."""

    name = "robust_tracking"

    def __init__(self, **keywords: Unpack[_RobustTrackingKeywords]) -> None:
        super().__init__(**keywords)
