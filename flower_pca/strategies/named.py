"""One Strategy for each algorithm and tracker. Written from the registry by .ci/classes.py.

An algorithm that was registered elsewhere gets one when it is first asked for: see
`flower_pca.strategies`.
"""

from __future__ import annotations

from typing import Any, Unpack

from flower_pca import registry
from flower_pca.base.spec import spelt_out
from flower_pca.strategies.pca import (
    PCA_DEFAULTS,
    STEP_DEFAULTS,
    PCAKeywords,
    PCAStrategy,
    StepKeywords,
    TrackingStrategy,
)


class Krylov(PCAStrategy):
    """One product C B a round, and nothing that was learnt is thrown away.

    Prefer it: nearly always; not where clients come and go in every round, or a rough answer in two
    rounds is enough.

    Args:
        oversample: Columns iterated beyond the number of components; or "auto": 2 in the opening,
            then, from the number of columns, as many as 512 kB of a message hold, but with a node
            of few `max_columns`, `dp` or a channel.
        max_basis: Blocks that the server keeps before it restarts from the better half of the Ritz
            vectors, or 16 where that is more than 600 columns; without a limit where a fraction is
            asked for, which cannot do with fewer.
        tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "krylov"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: Any = 2,
        tol: float = 1e-08,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 50,
        max_basis: int = 40,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, max_basis=max_basis
        ), **keywords)  # fmt: skip


class SSI(PCAStrategy):
    """Z <- orth(sum C_i Z).

    Prefer it: under added noise, or where clients come and go in every round; else Krylov needs far
    fewer rounds.

    Args:
        oversample: Columns iterated beyond the number of components. Without one nothing looks for
            the gap.
        tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "ssi"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 1,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 50,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience
        ), **keywords)  # fmt: skip


class LocalPower(PCAStrategy):
    """q local power steps a round: X_i <- orth(C_i X_i) q - 1 times, then Z <- orth(sum C_iX_iO_i).

    Prefer it: for a rough answer in two or three rounds.

    Args:
        local_steps: q at the start.
        align: "procrustes", "sign" or "none".
        decay: Whether q falls to 1.
        halve_every: Rounds after which q is halved.
        oversample, tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "local_power"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 1,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 50,
        local_steps: int = 8,
        align: str = "procrustes",
        decay: bool = True,
        halve_every: int = 3,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, local_steps=local_steps, align=align, decay=decay,
            halve_every=halve_every
        ), **keywords)  # fmt: skip


class FAPS(PCAStrategy):
    """Every client keeps a subspace X_i of its own and a low-rank multiplier; the server only sums.

    Prefer it: where the server sees single answers, and no covariance of a client may follow from
    them.

    Args:
        inner_steps: Subspace iterations of the inner problem.
        inner_tol: If given, the inner iteration also ends when its subspace moves by at most this.
        penalty: "measured" from the rows in every round, or "paper": the paper's rule.
        beta_0: Of the paper's penalties, the first one as a share of the largest eigenvalue of C_i.
        theta: By which share they grow.
        mu: By which share the distance to consensus must have fallen, over five rounds, for them
            not to grow.
        oversample, tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "faps"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 0,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 2000,
        patience: int = 200,
        inner_steps: int = 10,
        inner_tol: float | None = None,
        penalty: str = "measured",
        beta_0: float = 0.15,
        theta: float = 0.1,
        mu: float = 0.01,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, inner_steps=inner_steps, inner_tol=inner_tol, penalty=penalty,
            beta_0=beta_0, theta=theta, mu=mu
        ), **keywords)  # fmt: skip


class UDA(PCAStrategy):
    """Unweighted distributed averaging: the leading eigenvectors of (1/N) sum V_i V_i', V_i the client's own top ones.

    Prefer it: where there is time for a single round, and clients have similar data and many rows.

    Args:
        oversample: Columns averaged beyond the number of components.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "uda"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(self, *, oversample: int = 0, **keywords: Unpack[PCAKeywords]) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample
        ), **keywords)  # fmt: skip


class WDA(PCAStrategy):
    """Weighted distributed averaging: UDA with V_i S_i V_i', S_i leading eigenvalues of C_i / n_i.

    Prefer it: over UDA where the variances of clients fall slowly, or differ from client to client.

    Args:
        oversample: Columns averaged beyond the number of components.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "wda"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(self, *, oversample: int = 0, **keywords: Unpack[PCAKeywords]) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample
        ), **keywords)  # fmt: skip


class DRSVD(PCAStrategy):
    """The range of Y = A A'A Omega (A: all rows stacked), an orthonormal Q of it, then the SVD of the small B = Q'A.

    Prefer it: for many components of data whose variances fall fast, where there is time for three
    rounds only.

    Args:
        rank: r; by default k + (d - k) // 4.
        oversample: Columns kept beyond the number of components.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "dr_svd"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(self, *, oversample: int = 0, rank: int | None = None, **keywords: Unpack[PCAKeywords]) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, rank=rank
        ), **keywords)  # fmt: skip


class DistPCA(PCAStrategy):
    """The leading left singular vectors of the clients' own top components, stacked; of more than wanted, if asked.

    Prefer it: over UDA where clients have a few directions in common, and others of their own.

    Args:
        local_components: Components that every client sends; at least as many as are wanted.
        oversample: Columns averaged beyond the number of components.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "dist_pca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self, *, oversample: int = 0, local_components: int | None = None, **keywords: Unpack[PCAKeywords]
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, local_components=local_components
        ), **keywords)  # fmt: skip


class FedOAPM(PCAStrategy):
    """U_l = qr(sum_k C_k U_{l-1} + W_l), W_l the noise of the channel (`AirChannel`).

    Prefer it: over a channel that adds noise to the sum, above all with qr_every > 1; else Krylov.

    Args:
        qr_every: eta, the products between two QRs. The estimate is good only just before a QR, and
            is read only there.
        oversample: Columns iterated beyond the number of components.
        tol, min_rounds, max_rounds, patience: See `Iterative`. Noise keeps the residual from
            falling to tol: such a run ends after patience or max_rounds.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "fed_oapm"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 0,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 500,
        patience: int = 50,
        qr_every: int = 1,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, qr_every=qr_every
        ), **keywords)  # fmt: skip


class MedianPCA(PCAStrategy):
    """Leading eigenvectors of the geometric median of projections, argmin_M sum ||V_i V_i' - M||.

    Prefer it: where up to two fifths of the clients may be wrong or dishonest, and each has rows
    enough of its own.

    Args:
        oversample: Columns that clients send beyond the number of components.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "median_pca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(self, *, oversample: int = 0, **keywords: Unpack[PCAKeywords]) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample
        ), **keywords)  # fmt: skip


class Covariance(PCAStrategy):
    """Every client sends C_i = X_i'X_i once; the server adds them up and takes the eigenvectors.

    Prefer it: with few columns, up to about a hundred, where one message of C_i costs less than
    several of Krylov's; under `dp` with more, as a budget spent on one message beats one spent on
    many.

    Args:
        oversample: Columns kept beyond the number of components.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "covariance"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(self, *, oversample: int = 0, **keywords: Unpack[PCAKeywords]) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample
        ), **keywords)  # fmt: skip


class SparsePCA(PCAStrategy):
    """x <- the largest entries of C x, for every component at once, each beside those before it.

    Prefer it: where readers shall see which few columns a component is made of; it leaves out a
    little more variance.

    Args:
        cardinality: The most columns that a component may have: one number, or one for each
            component.
        oversample: Columns of the opening beyond the number of components, for a better start.
        tol, min_rounds, max_rounds, patience: See `Iterative`. The error is a component's residual
            in its own columns.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "sparse_pca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 2,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 50,
        cardinality: int | tuple[int, ...] = 10,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, cardinality=cardinality
        ), **keywords)  # fmt: skip


class DCFPCA(PCAStrategy):
    """Rows = V_i U' + S_i, U common, S_i sparse: every client takes gradient steps on its own U_i, the server averages.

    Prefer it: to repeat the paper. `ConsensusRPCA` needs fewer rounds, no step size, and is exact.

    Args:
        local_steps: Gradient steps of a client in a round, K.
        eta: The step; 0.05 if left out, 1.0 for "scaled".
        step: "paper" or "scaled".
        anneal: Whether the step falls as 1 / sqrt(t + 1). It does if left out, but not for
            "scaled".
        init: U at first: "random" N(0, 1) entries, or the leading directions that the "opening" has
            found, as long.
        threshold: lambda / sigma.
        ridge: rho / (lambda sqrt(max(n, d))).
        inner_steps: Steps of the inner problem.
        sigma: The size of an ordinary entry, if it is known: clients do not count their entries
            then.
        oversample, tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "dcf_pca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 0,
        tol: float = 0.001,
        min_rounds: int = 0,
        max_rounds: int = 50,
        patience: int = 50,
        inner_steps: int = 5,
        sigma: float | None = None,
        local_steps: int = 2,
        eta: float | None = None,
        step: str = "paper",
        anneal: bool | None = None,
        init: str = "random",
        threshold: float = 0.2,
        ridge: float = 0.1,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, inner_steps=inner_steps, sigma=sigma, local_steps=local_steps,
            eta=eta, step=step, anneal=anneal, init=init, threshold=threshold, ridge=ridge
        ), **keywords)  # fmt: skip


class ConsensusRPCA(PCAStrategy):
    """Rows = V_i U' + S_i, U common, S_i sparse, recovered exactly: sums only, no step size, a proof.

    Prefer it: where single values are wrong by far: typing errors, other units, sensors that fail.
    A client of a single row sends its clean part up to scale.

    Args:
        gamma: By which lambda falls in a round of the first attempt: 0.7 does for easy problems.
        ridge: rho / (lambda sqrt(max(n, d))).
        noise: Deviation of dense noise, in the frame: "auto" to have it estimated, 0.0 for none.
        restarts: Attempts after the first, if its proof fails.
        inner_steps: Steps of the inner problem, at most.
        sigma: The size of an ordinary entry, if it is known: clients do not count their entries
            then.
        oversample, tol, min_rounds: See `Iterative`.
        max_rounds: Of all attempts together.
        patience: Rounds at the end of an attempt before it is proven even if its basis is not at
            rest.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "consensus_rpca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 0,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 300,
        inner_steps: int = 3,
        sigma: float | None = None,
        gamma: float = 0.9,
        ridge: float = 0.3,
        noise: float | str = "auto",
        restarts: int = 4,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, inner_steps=inner_steps, sigma=sigma, gamma=gamma, ridge=ridge,
            noise=noise, restarts=restarts
        ), **keywords)  # fmt: skip


class PerPCA(PCAStrategy):
    """Algorithm 2 of the paper: clients take a gradient step on U and V_i; the server averages U_i.

    Prefer it: to repeat the paper. `ExactPerPCA` takes 5 to 100 times fewer rounds to the same end.

    Args:
        local_components: r2, the own components of each client; fewer where its rows have not that
            rank. Or a mapping from clients, by position or name of their site, to such numbers;
            "others" are all that it does not name. Or "auto": each client chooses, up to 10, from
            rows that it holds out in turn; see `held_out`.
        weights: "equal" (every client counts the same) or "samples" (w_i = n_i).
        init, start_rounds, given: See `Personalized`.
        collect: Whether to ask for the own components at the end, which only nodes that agree will
            send.
        choice: 1 or 2.
        retraction: "polar" or, with choice 1, "qr".
        step: The step in multiples of 1 / max_i ||S_i||_2. Left out, it begins at 0.5 and, with
            choice 1, doubles after every round that has raised the objective, and falls to a
            quarter, not below 0.5, after any other. The longest there is, 16, is halved after a
            fall from no higher than an earlier one: else it could go on so for ever.
        eta: If given, the absolute step instead.
        oversample: Columns beyond the shared components in the Lanczos blocks of init="projection".
        tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "per_pca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 0,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 50,
        local_components: int | Any | str = 1,
        weights: str = "equal",
        init: str = "projection",
        start_rounds: int = 6,
        collect: bool = False,
        given: Any = None,
        choice: int = 1,
        retraction: str = "polar",
        step: float | None = None,
        eta: float | None = None,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, local_components=local_components, weights=weights, init=init,
            start_rounds=start_rounds, collect=collect, given=given, choice=choice,
            retraction=retraction, step=step, eta=eta
        ), **keywords)  # fmt: skip


class ExactPerPCA(PCAStrategy):
    """Each client solves for V_i exactly; the server maximises what is linear in U.

    Prefer it: where clients have directions of their own beside the common ones; it takes fewer
    rounds than PerPCA. Only sums leave the clients.

    Args:
        local_components: r2, the own components of each client; fewer where its rows have not that
            rank. Or a mapping from clients, by position or name of their site, to such numbers;
            "others" are all that it does not name. Or "auto": each client chooses, up to 10, from
            rows that it holds out in turn; see `held_out`.
        weights: "equal" (every client counts the same) or "samples" (w_i = n_i).
        init, start_rounds, given: See `Personalized`.
        collect: Whether to ask for the own components at the end, which only nodes that agree will
            send.
        acceleration: "lbfgs", a quasi-Newton step from ten rounds before, or "none", the plain one.
        local_steps: If above 0, so many warm power steps for V_i instead of the exact solution.
        gain_tol: If above 0, the run also ends, as settled, when the objective has gained no more
            than this share of itself in ten rounds, the next step promises no more, and the last
            ten steps show no saddle; see `Gains`.
        oversample: Columns beyond the shared components in the Lanczos blocks of init="projection".
        tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "exact_per_pca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 0,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 50,
        local_components: int | Any | str = 1,
        weights: str = "equal",
        init: str = "projection",
        start_rounds: int = 6,
        collect: bool = False,
        given: Any = None,
        acceleration: str = "lbfgs",
        local_steps: int = 0,
        gain_tol: float = 0.0,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, local_components=local_components, weights=weights, init=init,
            start_rounds=start_rounds, collect=collect, given=given, acceleration=acceleration,
            local_steps=local_steps, gain_tol=gain_tol
        ), **keywords)  # fmt: skip


class TriplePCA(PCAStrategy):
    """Rows are shared, own and sparse parts and noise: `ExactPerPCA` on rows less what is far.

    Prefer it: where clients have directions of their own and single entries of their rows are far
    off.

    Args:
        local_components: r2, the own components of each client; fewer where its rows have not that
            rank. Or a mapping from clients, by position or name of their site, to such numbers;
            "others" are all that it does not name.
        threshold: How far off an entry is taken out, in multiples of its column's noise.
        inner_steps: How often a client finds far entries and own components anew for a U; ten times
            as often where it begins.
        weights, init, start_rounds, given, collect: See `ExactPerPCA`.
        acceleration, local_steps, gain_tol, oversample: See there.
        tol, min_rounds, max_rounds, patience: See `Iterative`.
        **keywords: Of nodes and question: see `PCAStrategy`.
    """

    name = "triple_pca"

    @spelt_out(PCAKeywords, PCA_DEFAULTS)
    def __init__(
        self,
        *,
        oversample: int = 0,
        tol: float = 1e-06,
        min_rounds: int = 0,
        max_rounds: int = 1000,
        patience: int = 50,
        local_components: int | Any | str = 1,
        weights: str = "equal",
        init: str = "projection",
        start_rounds: int = 6,
        collect: bool = False,
        given: Any = None,
        acceleration: str = "lbfgs",
        local_steps: int = 0,
        gain_tol: float = 0.0,
        threshold: float = 4.0,
        inner_steps: int = 3,
        **keywords: Unpack[PCAKeywords],
    ) -> None:
        super().__init__(registry.make(
            self.name, oversample=oversample, tol=tol, min_rounds=min_rounds, max_rounds=max_rounds,
            patience=patience, local_components=local_components, weights=weights, init=init,
            start_rounds=start_rounds, collect=collect, given=given, acceleration=acceleration,
            local_steps=local_steps, gain_tol=gain_tol, threshold=threshold, inner_steps=inner_steps
        ), **keywords)  # fmt: skip


class STMiss(TrackingStrategy):
    """P_j = the r leading left singular vectors of batch j, completed with the basis before it.

    Prefer it: for rows that keep coming, with gaps but without outliers, and whose subspace moves.

    Args:
        refine: Whether clients complete a batch once more with the basis found from it, one step
            later.
        reuse: How often the batch is completed with its own basis and used again.
        detect, threshold, alarm_rate, update_length: See `Tracker`, as for all that follow.
        solver, products, first_products, qr_every, tol, oversample, keep: What a step asks for, and
            what is kept.
        **keywords: Of nodes and question: see `TrackingStrategy`.
    """

    name = "st_miss"

    @spelt_out(StepKeywords, STEP_DEFAULTS)
    def __init__(
        self,
        *,
        refine: bool = False,
        reuse: int = 0,
        detect: bool = False,
        threshold: float | None = None,
        alarm_rate: float = 0.001,
        update_length: int = 10,
        monitor: bool = False,
        solver: str = "krylov",
        products: int = 10,
        first_products: int = 60,
        qr_every: int = 1,
        tol: float = 1e-08,
        oversample: int = 2,
        keep: int = 1000,
        **keywords: Unpack[StepKeywords],
    ) -> None:
        super().__init__(registry.tracker(
            self.name, refine=refine, reuse=reuse, detect=detect, threshold=threshold,
            alarm_rate=alarm_rate, update_length=update_length, monitor=monitor, solver=solver,
            products=products, first_products=first_products, qr_every=qr_every, tol=tol,
            oversample=oversample, keep=keep
        ), **keywords)  # fmt: skip


class RobustTracking(TrackingStrategy):
    """STMiss on rows of which a sparse, unknown part is corrupted: y_t = l_t + g_t where observed.

    Prefer it: where single entries are wrong by far more than rows stray from the subspace: moving
    objects in video, sensors that fail.

    Args:
        smallest_outlier: s_min, in the units of the data. Left out, each row's is 1.8 times the
            root mean square of its observed entries, the authors' setting for video less its mean.
        refine: Whether clients complete a batch once more with the basis found from it, one step
            later.
        reuse: How often the batch is completed with its own basis and used again.
        detect, threshold, alarm_rate, update_length: See `Tracker`, as for all that follow.
        solver, products, first_products, qr_every, tol, oversample, keep: What a step asks for, and
            what is kept.
        **keywords: Of nodes and question: see `TrackingStrategy`.
    """

    name = "robust_tracking"

    @spelt_out(StepKeywords, STEP_DEFAULTS)
    def __init__(
        self,
        *,
        refine: bool = False,
        reuse: int = 0,
        detect: bool = False,
        threshold: float | None = None,
        alarm_rate: float = 0.001,
        update_length: int = 10,
        monitor: bool = False,
        solver: str = "krylov",
        products: int = 10,
        first_products: int = 60,
        qr_every: int = 1,
        tol: float = 1e-08,
        oversample: int = 2,
        keep: int = 1000,
        smallest_outlier: float | None = None,
        **keywords: Unpack[StepKeywords],
    ) -> None:
        super().__init__(registry.tracker(
            self.name, refine=refine, reuse=reuse, detect=detect, threshold=threshold,
            alarm_rate=alarm_rate, update_length=update_length, monitor=monitor, solver=solver,
            products=products, first_products=first_products, qr_every=qr_every, tol=tol,
            oversample=oversample, keep=keep, smallest_outlier=smallest_outlier
        ), **keywords)  # fmt: skip
