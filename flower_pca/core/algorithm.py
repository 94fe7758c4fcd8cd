"""The parts that all algorithms share: the width of blocks, the stopping rule, and the way in which a run restarts.

`Algorithm` is a stage with a block width. It can restart, and corrects the status of a run at the end.
`Iterative` adds the stopping rule: its state has a `Progress`, which counts rounds and remembers the
smallest error, and from which `status` follows. `EmptyStage` is a stage that asks for no array. The other
names help to write the server's part of an algorithm: `SubspaceMovement` for errors that can only be estimated
from steps, `ritz_step` for blocks whose product is known, and `scale_up_to_all_rows` for sums in which some clients
are missing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.core.kinds import Part
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Stage
from flower_pca.settings.bits import fewest_bits_within

S = TypeVar("S")

_LARGEST_NOISE: Final = 0.1  # maximum length of the noise that is mixed into a column of length 1
# This noise has a length of at least _SMALLEST_NOISE tol sqrt(d), or _LARGEST_NOISE if that is less. Noise of length s
# contains about s / sqrt(d) of a hidden direction, or a twentieth of this in an unlucky draw. Even a tenth of such a
# part must have a residual above tol.
_SMALLEST_NOISE: Final = 200.0
_NOISE_SEED: Final = 2000  # the offset of the seed of this noise, so that the seed differs from the seeds of blocks
# If the number of components is given as a fraction of the variance, a run begins with this many columns.
_FRACTION_WIDTH: Final = 10
# Residuals below this multiple of the data's eps cannot be distinguished from rounding errors.
_ROUNDING: Final = 32.0
# A power step may have rounding errors of up to this share of the remaining error. On six spectra, this did not
# increase the number of messages.
_ROUNDING_SHARE: Final = 0.25


@dataclass(frozen=True, kw_only=True)
class Algorithm(Stage[S]):
    """A stage that computes a basis of the leading subspace, starting from the opening's block.

    Attributes
    ----------
    centers : bool
        Whether rows are centered by default.
    by_power : bool
        Whether a round is a power step.
    ends_by_angle : bool
        Whether the error is an estimate of the remaining angle.
    keeps_product : bool
        Whether the state holds everything that the algorithm needs from the product of the opening.
    oversample : int
        The number of columns of a block in addition to the wanted components.
    """

    centers: ClassVar[bool] = True
    by_power: ClassVar[bool] = False
    ends_by_angle: ClassVar[bool] = False
    keeps_product: ClassVar[bool] = False

    oversample: int = 0

    def __post_init__(self) -> None:
        checks.integer(f"oversample of {self.name}", self.oversample)

    @property
    def numbers_by_client(self) -> Mapping[int | str, int] | None:
        """The number for each client, for example of local components, or None if all clients get the same number."""
        return None

    def width(self, n_components: int | float) -> int:
        """Return p, the number of columns of a block. The caller reduces p if there are fewer features."""
        return (n_components if isinstance(n_components, int) else _FRACTION_WIDTH) + self.oversample

    def restart(self, model: Model) -> Array:
        """Return the block with which the run repeats the opening after the set of clients has changed.

        The block consists of the known columns, with a small part of every other direction mixed in, because a
        block orthogonal to a new client's features would stay orthogonal and look converged. If a round is a
        power step, random columns replace the additional columns instead. The components then stay unchanged,
        so that a run that ends early is no worse.
        """
        Z, seed = model.columns, model.seed + model.restarts + 1
        if not self.by_power:
            return _mix_random_directions(Z, seed, _LARGEST_NOISE)
        width = max(self.width(model.n_components), Z.shape[1])
        noise = linalg.random_block(len(Z), width - model.k, seed)
        return np.hstack([Z[:, : model.k], noise / np.sqrt(len(Z))])

    def unsent(self, state: S) -> Array | None:
        """Return the next block if it has not been sent to any client yet, or None.

        Under masks, a run repeats the opening with this block. The difference of two sums for the same block,
        one with a client and one without this client, would reveal the client's answer.
        """
        return None

    @abstractmethod
    def rounds(self, state: S) -> int:
        """Return the number of messages that this stage has sent so far."""

    def verify(self, model: Model) -> Status | None:
        """Return the run's status, corrected by the true residuals, which the closing stage has measured.

        The result is None if the run has no status yet. The residuals of components that are not orthonormal
        are not used, because only the first of these components is an eigenvector. Neither are the residuals
        of components that are not meant to be eigenvectors of the covariance of all rows.
        """
        status, values, residuals = model.status, model.values, model.residuals
        if status is None or not status.ok or not (self.orthonormal and self.pooled):
            return status
        if values is None or residuals is None:
            return status
        if doubts := model.remaining_doubts:
            status = status.followed_by(doubts)
        return self.corrected(status, model, values, residuals)

    def corrected(self, status: Status, model: Model, values: Array, residuals: Array) -> Status:
        """Return the status of a run that reached its goal, corrected by the eigenvalues and true residuals."""
        return status


def mixed_with_other_directions(Z: Array, model: Model, tol: float) -> Array:
    """Return Z, mixed with a small part of all other directions if the columns of Z come from other rows.

    A block that is orthogonal to a new client's features would stay orthogonal, and look converged. The
    added part is small, because a run that ends early has no rounds to remove it. The added part is large
    enough for a hidden direction to have a residual above tol.
    """
    if not model.may_miss_directions:
        return Z
    size = min(_LARGEST_NOISE, _SMALLEST_NOISE * tol * np.sqrt(len(Z)))
    return linalg.orth(_mix_random_directions(Z, model.seed + model.restarts + _NOISE_SEED, size))


def _mix_random_directions(Z: Array, seed: int, size: float) -> Array:
    noise = linalg.random_block(len(Z), Z.shape[1], seed)
    return np.asarray(Z + size * noise / np.sqrt(len(Z)))


@dataclass(frozen=True, kw_only=True)
class EmptyStage(Algorithm[S]):
    """A stage whose message and answers contain no arrays. Subclasses decide when the stage ends.

    The answers may still contain headings, such as column names.
    """

    def broadcast(self, state: S) -> Arrays:
        return {}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {}

    @staticmethod
    def client(arrays: Arrays, data: Any, memory: Arrays) -> tuple[Arrays, Arrays]:
        if arrays:
            raise ProtocolError(
                f"The message has arrays ({', '.join(arrays)[:100]}), but its stage needs none. {OTHER_SERVER}"
            )
        return {}, memory

    def server(self, state: S, total: Any, answered: frozenset[int]) -> S:
        return state

    def rounds(self, state: S) -> int:
        return 0

    def finish(self, state: S, model: Model) -> Model:
        return model


@runtime_checkable
class ChoosesAlgorithm(Protocol):
    """An algorithm that may be replaced by another algorithm after the opening has described the rows."""

    @property
    def alternative(self) -> str:
        """The name of the other algorithm. In the opening, the server asks nodes whether they decline to serve it."""

    def choose_algorithm(self, model: Model) -> tuple[Algorithm[Any], str]:
        """Return the algorithm with which the run continues, and the reason for this choice."""


@runtime_checkable
class ReconsidersChoice(ChoosesAlgorithm, Protocol):
    """An algorithm that may still be replaced during its rounds."""

    @property
    def alternative_algorithm(self) -> Algorithm[Any]:
        """The algorithm that may replace this algorithm after some rounds. Its name is `alternative`."""

    def reconsider(self, chosen: Algorithm[Any], state: Any, model: Model) -> str:
        """Return the reason for continuing with `alternative_algorithm`, or "" to keep the chosen algorithm."""


@runtime_checkable
class AdaptsToNoise(Protocol):
    """An algorithm that is replaced before the run if answers will be noisy."""

    def under_noise(self, *, private: bool, over_air: bool, columns_known: bool) -> tuple[Algorithm[Any], str]:
        """Return the algorithm with which the run begins, and the reason for this choice, or "".

        The reason is "" if the algorithm does not change. `private` is True for a run with a privacy budget,
        `over_air` is True for a run over a noisy channel. `columns_known` is True if the columns have public ranges.
        """


@dataclass(frozen=True)
class Progress:
    """The progress of an iteration.

    Attributes
    ----------
    tol : float
        The error at which the iteration has converged.
    rounds : int
        The number of rounds so far.
    error : float
        The error after the latest round, or inf if it is unknown.
    best : float
        The smallest measure of progress so far.
    gained : float
        The largest gain so far: see `step`.
    stale : int
        The number of rounds since the last progress.
    sure : bool
        Whether the block cannot miss a larger direction. It may miss one if the run started from the components of
        other rows.
    bits : int
        The largest number of bits of a number if messages may have fewer bits while the error is large, or else 0.
    coarse : bool
        Whether the numbers of the latest power step had fewer bits. Their rounding error may exceed `tol`, and
        residuals do not show all of it, so the iteration does not end after such a step.
    """

    tol: float
    rounds: int = 0
    error: float = np.inf
    best: float = np.inf
    gained: float = -np.inf
    stale: int = 0
    sure: bool = True
    bits: int = 0
    coarse: bool = False

    @classmethod
    def begin(cls, tol: float, model: Model) -> Progress:
        """Return the progress before the first round. The tolerance is at least the precision of the data."""
        return cls(tol=max(tol, _ROUNDING * model.eps), rounds=model.rounds, bits=model.bits_by_tolerance)

    def step(self, error: float, measure: float | None = None, *, gain: float = -np.inf, rounds: int = 1) -> Progress:
        """Return the progress after a round with this error.

        A round makes progress if `measure` (by default the error) falls below its smallest value so far, or if
        `gain` rises above its largest value so far. For example, the sum of the wanted Ritz values is a gain,
        because it rises long before residuals begin to fall.
        """
        if measure is None:
            measure = error
        # A round with an unknown error does not count as a round without progress.
        moves = measure < self.best or not np.isfinite(measure) or gain > self.gained
        return replace(
            self,
            rounds=self.rounds + rounds,
            error=error,
            best=min(self.best, measure),
            gained=max(self.gained, gain),
            stale=0 if moves else self.stale + 1,
        )

    @property
    def rounding_allowed(self) -> float:
        """The largest rounding error that does not slow down power steps, which reduce it like other errors.

        It is 0 if the error is unknown or does not fall, or if the block may miss a larger direction.
        """
        if self.stale or not (self.sure and np.isfinite(self.error)):
            return 0.0
        return _ROUNDING_SHARE * self.error


class Iterating(Protocol):
    """The state of an iterative algorithm, which holds its progress."""

    @property
    def progress(self) -> Progress:
        """The number of rounds, the error, and the number of rounds without progress."""


I = TypeVar("I", bound=Iterating)


@dataclass(frozen=True, kw_only=True)
class Iterative(Algorithm[I]):
    """An algorithm that iterates until it converges, stalls, or reaches its maximum number of rounds.

    The algorithm converges when its error is at most `tol`, or the precision of the data if that is larger.
    It stalls when the error has not fallen for `patience` rounds, and gives up after `max_rounds`. The
    state has a field `progress`. `start` creates it with `Progress.begin`, and `server` updates it with
    `Progress.step`.

    Attributes
    ----------
    quantity : str
        A description of the error for the status of a run.
    """

    quantity: ClassVar[str] = "largest residual relative to the first eigenvalue"

    tol: float = 1e-6
    min_rounds: int = 0
    max_rounds: int = 1000
    patience: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(f"tol of {self.name}", self.tol, least=0.0, remedy="Try 1e-6.")
        checks.integer(f"min_rounds of {self.name}", self.min_rounds)
        checks.integer(f"max_rounds of {self.name}", self.max_rounds, least=max(1, self.min_rounds))
        checks.integer(f"patience of {self.name}", self.patience, least=1)

    @property
    def tolerance(self) -> float:
        """The tolerance as a number, even if a subclass allows other values of `tol`."""
        return self.tol

    def allowed_residuals(self, model: Model) -> Array:
        """Return the largest allowed residual of each component, divided by the first eigenvalue."""
        return np.full(model.k, Progress.begin(self.tolerance, model).tol)

    def rounding_of_power(self, progress: Progress) -> float:
        """Return the largest rounding error that the next message of a power iteration may have.

        No later step reduces the errors of the last round, and the variances of the result are computed from it.
        """
        if progress.rounds + 1 >= self.max_rounds:
            return 0.0
        return progress.rounding_allowed

    def rounds(self, state: I) -> int:
        return state.progress.rounds

    def status(self, state: I) -> Status | None:
        p = state.progress
        # The numbers of the last possible round have all bits: see `rounding_of_power`.
        small = p.error <= p.tol and not (p.coarse and p.rounds < self.max_rounds)
        over = (small and p.sure) or p.stale >= self.patience or p.rounds >= self.max_rounds
        # min_rounds also delays convergence, because under a budget an early end would reveal something about
        # the rows.
        if p.rounds < self.min_rounds or not over:
            return None
        rounds = labels.count(p.rounds, "round")
        end = f"after {rounds}" if p.rounds else "after the opening message"
        measured = f"{self.quantity} (not falling yet)"
        if np.isfinite(p.error):
            measured = f"{self.quantity} {p.error:.2g}"
        if small and not p.sure:
            words = f"{measured} is at most tol={p.tol:.2g} {end}, but a larger direction may still be hidden"
            return Status(Outcome.MAX_ROUNDS if p.rounds >= self.max_rounds else Outcome.STALLED, words)
        if small:
            if p.tol == self.tolerance:
                bound = f"tol={p.tol:.2g}"
            else:
                bound = f"{p.tol:.2g}, the precision of the data"
            return Status(Outcome.CONVERGED, f"{measured} is at most {bound} {end}")
        if p.stale >= self.patience:
            return Status(Outcome.STALLED, f"{measured} has not fallen for the last {p.stale} of {rounds}")
        return Status(Outcome.MAX_ROUNDS, f"{measured} is above tol={self.tolerance:.2g} after {rounds}")

    def corrected(self, status: Status, model: Model, values: Array, residuals: Array) -> Status:
        # A residual is at most theta_1 times the sine of the angle. If the residual is above tol although the
        # estimated angle is not, successive rounds agreed on something other than the leading subspace.
        tol = Progress.begin(self.tolerance, model).tol
        first = max(float(values[0]), np.finfo(float).tiny)
        relative = residuals[: model.k] / first
        if (relative > 2.0 * self.allowed_residuals(model)).any():
            true = float(relative.max())
            return Status(
                Outcome.STALLED, f"the rounds converged, but the true residual {true:.2g} is above tol={tol:.2g}"
            )
        above = int(np.sum(values[: model.k] >= tol * first))
        small = range(above + 1, model.wanted_rank + 1)
        if not small:
            return status
        below = f"below tol={tol:.2g} times the first"
        which = labels.range_of("component", small)
        if model.has_small_angle:
            left = f"the estimated error is an angle with a sine of {model.sine_estimate:.1g}"
            return status.with_notes([f"the eigenvalues of {which} are {below}, and {left}"])
        scaled = option("scale", "std")
        remedy = f"use {scaled}, or ask for fewer components"
        smallest = float(values[small[-1] - 1] / values[0])
        finer = 10.0 ** np.floor(np.log10(0.01 * smallest))
        if finer > _ROUNDING * model.eps:
            remedy = f"use {option('tol', float(f'{finer:.0e}'))}, or {scaled}"
        words = (
            f"residuals are at most tol, but the eigenvalues of {which} are {below}, so their residuals prove nothing: "
        )
        return Status(Outcome.STALLED, words + remedy)

    def metrics(self, state: I) -> dict[str, float]:
        error = state.progress.error
        if np.isfinite(error):
            return {"error": error}
        return {}


@dataclass(frozen=True)
class SubspaceMovement:
    """The sines of the angles between the subspaces of the latest rounds, oldest first."""

    sines: tuple[float, ...] = ()

    def add(self, previous: Array, newest: Array) -> SubspaceMovement:
        """Return the movement after one more step, from the subspace `previous` to the subspace `newest`."""
        return SubspaceMovement((*self.sines[-3:], linalg.sin_theta(previous, newest)))

    @property
    def newest(self) -> float:
        """The sine of the latest step."""
        return self.sines[-1]

    @property
    def remaining(self) -> float:
        """The estimated remaining distance to the limit: the latest step divided by (1 - c), or inf if c >= 1.

        c is the largest ratio of two successive sines.
        """
        if self.newest == 0.0:
            return 0.0
        ratios = [b / a for a, b in zip(self.sines, self.sines[1:], strict=False) if a > 0.0]
        worst = max(ratios, default=1.0)
        if worst < 1.0:
            return self.newest / (1.0 - worst)
        return np.inf


def ritz_step(
    block: Array, Y: Array, k: int, progress: Progress, *, rounds: int = 1
) -> tuple[Array, Array, Array, Progress]:
    """Return the Ritz values of C on the span of a block, the Ritz vectors, their products with C, and the progress.

    Y is C times the block. The error is the largest residual of the k wanted pairs, relative to the first Ritz
    value. The server computes the error without another message.
    """
    values, Z, CZ, residuals = linalg.rayleigh_ritz(block, Y)
    # The first Ritz value of noise alone may be 0 or less.
    with np.errstate(over="ignore"):
        largest = max(float(values[0]), np.finfo(float).tiny)
        error = float(residuals[:k].max() / largest)
    gain = float(values[:k].sum())
    # Without `bits`, all messages have the same number of bits.
    coarse = bool(progress.bits) and fewest_bits_within(progress.rounding_allowed) < progress.bits
    return values, Z, CZ, replace(progress.step(error, gain=gain, rounds=rounds), coarse=coarse)


def scale_up_to_all_rows(total: Mapping[str, Array], name: str, n: int) -> Array:
    """Return the sum `name` over the clients that answered, scaled up to all n rows."""
    return np.asarray(total[name] * (n / float(total["n"])))
