"""Question: what is asked of the clients, as one frozen value. It is checked and documented here, once.

`assembly.run` makes a run of a question, over whatever transport; `assembly.question` makes a question of its short
form, in which algorithm, masks, budget and channel may be strings, as a configuration has them. Checkpoints and results
keep `plain()`, from which `assembly.question` makes the same question again. Nothing in a question changes.
"""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, Final

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.layer import Layer
from flower_pca.core.settings import BITS, DP, FLOORS, WIRES, MaskedSums, fewest_bits
from flower_pca.core.stage import Stage
from flower_pca.names.columns import wanted

SCALES: Final = (None, "std", "max_abs")
MISSING: Final = ("error", "own_mean", "mean")
SPLITS: Final = ("rows", "columns")
_NOISY_ROUNDS: Final = 100  # a budget over more than so many rounds leaves nothing but noise
_NAME: Final = "Name a number."
_LARGEST: Final = "A largest value cannot be told privately."
_EXACT: Final = "An exact error would tell about single rows."
_COUNTS: Final = "Exact counts would tell about single rows."
_SINGLE: Final = "Exact answers of single clients would tell about single rows."
_ALONE: Final = {  # what is not had over the air, and why
    "monitor": "counts cannot have noise on them",
    "influence": "nobody sees the answer of a single client",
}
_ONE: Final = "Leave one of them out."
_REACH: Final = "Bound the raw rows."


def summable(stage: Stage[Any], channel: Layer | None) -> None:
    """Require what masks need: a stage of which nothing but sums has to be had, and no channel that adds noise."""
    if stage.sums_remedy:
        rule = "one whose clients send sums and nothing else"
        raise ConfigError("The algorithm under masks", must=rule, got=stage.spec, then=stage.sums_remedy)
    if channel is not None:
        raise ConfigError("channel under masks", must="left out", got=repr(channel), then="Leave one of them out.")


@dataclass(frozen=True)
class Question:
    """What is asked.

    Args:
        algorithm: The algorithm, with its hyper-parameters: see `make`.
        n_components: How many components, or the fraction of the total variance in (0, 1) that they shall exceed, which
            the short form takes as "95%" too.
        center: Whether to subtract the mean of all rows; the algorithm's own default if left out.
        scale: None, "std" (unit variance) or "max_abs" (each column divided by its largest absolute value).
        missing: "error", "own_mean" or "mean": NaN then stands for a missing value, in whose place comes the mean of
            those that its column has at the same client, or at all clients.
        columns: Names of the columns to use, in the order that the result shall have; others are left out. In short: a
            text with commas between them. Left out, clients must all have the same columns, which are then in the
            order of their sorted names; or by position, if no client has names.
        seed: Seed of everything random.
        fraction: The share of the clients present that each round of the algorithm goes to.
        evaluate: Whether to measure the reconstruction error on the clients at the end.
        monitor: Whether the clients count, at the end, how many of their rows lie how far from the components, so that
            `analysis.Monitor` has limits from all their rows. Nodes serve it only if their `allow` names "monitor".
        influence: Whether to measure, at the end, what the components would be without each client: see
            `analysis.influence`. Needs the answers of single clients.
        min_clients: Clients that must be present in every round.
        mask: How the clients' answers are masked, so that the server learns nothing but their sums; None for plain
            answers. In short: True, or a string such as "masks(neighbours=20)".
        dp: The privacy budget, for ssi, krylov and covariance. Clients then clip their rows and add noise: each
            in full, or in shares under `mask`. In short: a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)".
        channel: What the server hears the sums of the replies through; None for an ideal one.
        wire: With how many bits blocks and products travel: "float64"; "float32", for a `tol` of 1e-7 at least;
            "float16", column by column, for one of 1e-3; or "auto", the fewest of these that go with `tol`. With `dp`
            or a channel it is float64, and for faps, robust and personalized PCA, whose clients keep what they send.
        split: "rows": clients hold the same columns of different people; or "columns": different columns of the same
            people, each centred and scaled by its own client, whose loadings stay there, while everybody sees the
            scores; for krylov, auto, ssi, local_power and covariance, at nodes whose rules allow it.

    Raises:
        ConfigError: If a value is not valid, or does not go with the others.
    """

    algorithm: Algorithm[Any]
    _: KW_ONLY
    n_components: int | float
    center: bool | None = None
    scale: str | None = None
    missing: str = "error"
    columns: tuple[str, ...] | None = None
    seed: int = 0
    fraction: float = 1.0
    evaluate: bool = False
    monitor: bool = False
    influence: bool = False
    min_clients: int = 1
    mask: MaskedSums | None = None
    dp: DP | None = None
    channel: Layer | None = None
    wire: str = "float64"
    split: str = "rows"

    def __post_init__(self) -> None:
        kinds = {"algorithm": Algorithm, "mask": MaskedSums, "dp": DP, "channel": Layer}
        for name, kind in kinds.items():
            given = getattr(self, name)
            if not isinstance(given, kind) and (given is not None or name == "algorithm"):
                rule, remedy = f"of class {kind.__name__}", "Use the short form to give it as a string."
                raise ConfigError(f"{name} of a Question", must=rule, got=repr(given), then=remedy)
        checks.choice("center", self.center, (True, False, None))
        checks.choice("scale", self.scale, SCALES)
        checks.choice("missing", self.missing, MISSING)
        checks.integer("seed", self.seed, most=2**62)
        fraction = checks.share(self.fraction)
        checks.proportion("The fraction of clients", fraction)
        for name in ("evaluate", "monitor", "influence"):
            checks.choice(name, getattr(self, name), (True, False))
        checks.integer("min_clients", self.min_clients, least=1)
        checks.choice("wire", self.wire, WIRES)
        checks.choice("split", self.split, SPLITS)
        self._check_bits()
        object.__setattr__(self, "columns", wanted(self.columns))
        plain = {"n_components": checks.components(self.n_components), "seed": int(self.seed)}
        for name, value in {**plain, "fraction": float(fraction)}.items():
            object.__setattr__(self, name, value)  # numpy's numbers become Python's, as files can have them
        for name, why in _ALONE.items():
            if getattr(self, name) and self.channel is not None:
                raise ConfigError(f"{name} over the air", must=f"False, as {why}", got=True, then=_ONE)
        if self.mask is not None:
            self._check_masks(self.mask)
        if self.dp is not None:
            self._check_budget(self.dp)
        if self.fraction < 1.0 and self.algorithm.fixed_set:
            what, remedy = self.algorithm.name, "Use ssi, local_power or faps to sample clients."
            raise ConfigError(f"The fraction of clients for {what}", must="1.0", got=self.fraction, then=remedy)

    @property
    def bits(self) -> int:
        """With how many bits blocks and products travel, as far as the question itself says."""
        if self.wire != "auto":
            return BITS[self.wire]
        return 64 if self.tol is None else fewest_bits(self.tol)

    @property
    def tol(self) -> float | None:
        """What the error is held against; None where there is no such number, or noise on the answers."""
        noise = self.dp is not None or self.channel is not None
        return self.algorithm.tol if isinstance(self.algorithm, Iterative) and not noise else None

    @property
    def centered(self) -> bool:
        """Whether the mean is subtracted, by what is asked or by what the algorithm is used to."""
        return self.algorithm.centers if self.center is None else bool(self.center)

    def plain(self) -> dict[str, Any]:
        """As plain values, as the short form takes them. The seed of noise is left out: it could take the noise off."""
        dp = None if self.dp is None else repr(replace(self.dp, noise_seed=None))
        words = {
            name: None if getattr(self, name) is None else repr(getattr(self, name)) for name in ("mask", "channel")
        }
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        columns = None if self.columns is None else list(self.columns)
        return {**values, "algorithm": self.algorithm.spec, **words, "dp": dp, "columns": columns}

    def check_checkpoint(self, path: str | os.PathLike[str] | None) -> None:
        """Refuse a checkpoint that cannot be written; and any with a budget, as answers would be given twice."""
        if path is None:
            return
        checks.parent("the checkpoint", path)
        if self.dp is not None:
            remedy = "Leave it out; start a new run with a budget of its own."
            raise ConfigError("The checkpoint with dp", must="none", got=str(path), then=remedy)

    def _check_bits(self) -> None:
        """Refuse fewer bits than the tolerance needs, and any with noise on the answers."""
        bits, algorithm = self.bits, self.algorithm
        if bits < 64 and (self.dp is not None or self.channel is not None):
            beside = "a channel" if self.dp is None else "dp"
            rule, remedy = '"float64" or "auto", as there is noise on the answers', "Leave it out."
            raise ConfigError(f"wire with {beside}", must=rule, got=repr(self.wire), then=remedy)
        least = FLOORS[bits]
        if isinstance(algorithm, Iterative) and algorithm.tol < least:
            what, remedy = f"tol of {algorithm.name} with wire={self.wire!r}", 'Raise it, or use wire="auto".'
            raise ConfigError(what, must=f"at least {least:g}", got=f"{algorithm.tol:g}", then=remedy)

    def _check_budget(self, dp: DP) -> None:
        """Refuse what noise does not go with: what makes the number of answers depend on the rows, or tells more."""
        algorithm = self.algorithm
        if not algorithm.bounded:
            rule = "asked of ssi, krylov or covariance"
            raise ConfigError("dp", must=rule, got=algorithm.name, then="Use ssi.")
        rounds = algorithm.max_rounds if isinstance(algorithm, Iterative) else 1
        if rounds > _NOISY_ROUNDS:
            most = f"at most {_NOISY_ROUNDS}, as every round takes a part of the budget"
            usual = rounds == getattr(type(algorithm), "max_rounds", 0)
            given = f"{rounds}, the default of {algorithm.spec.partition('(')[0]}" if usual else f"{rounds}"
            raise ConfigError("max_rounds with dp", must=most, got=given, then="Start with max_rounds=5.")
        rules: tuple[tuple[bool, str, str, object, str], ...] = (
            (isinstance(self.n_components, int), "n_components with dp", "a whole number", self.n_components, _NAME),
            (self.scale != "max_abs", "scale with dp", 'None or "std"', repr(self.scale), _LARGEST),
            (self.missing == "error", "missing with dp", '"error"', repr(self.missing), "Impute before the run."),
            (not self.evaluate, "evaluate with dp", "False", self.evaluate, _EXACT),
            (not self.monitor, "monitor with dp", "False", self.monitor, _COUNTS),
            (not self.influence, "influence with dp", "False", self.influence, _SINGLE),
            (self.scale is None or dp.reach is not None, "reach of dp with a scale", "given", "none", _REACH),
        )
        for holds, what, rule, got, remedy in rules:
            if not holds:
                raise ConfigError(what, must=rule, got=got, then=remedy)

    def _check_masks(self, mask: MaskedSums) -> None:
        """Refuse what sums alone cannot answer."""
        summable(self.algorithm, self.channel)
        if self.influence:
            rule = f"False, as {_ALONE['influence']}"
            raise ConfigError("influence under masks", must=rule, got=True, then=_ONE)
        if self.scale == "max_abs" and self.split == "rows":
            rule = "None or 'std', which follow from sums"
            raise ConfigError("scale under masks", must=rule, got="'max_abs'", then="Use 'std'.")
        if self.dp is not None and mask.bound is not None:
            rule, remedy = "left out with dp", "It follows from the noise."
            raise ConfigError("bound of the masks", must=rule, got=mask.bound, then=remedy)
        if self.dp is not None and not mask.self_masks:
            remedy = "Leave it out: else an upload that comes late could be opened, with its share of noise."
            raise ConfigError("self_masks of the masks", must="True with dp", got=False, then=remedy)
        if self.fraction < 1.0 and self.algorithm.caches:
            rule, remedy = "1.0, as the last answers of the others cannot be had", "Leave it out, or the masks."
            what = f"The fraction of clients for {self.algorithm.name} under masks"
            raise ConfigError(what, must=rule, got=self.fraction, then=remedy)
