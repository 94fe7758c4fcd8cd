"""The one table of algorithms: each with the stage that closes its run, and the class of its result.

All that knows algorithms by name looks here: `make` and the spec strings, the strategies and clients of Flower, the
names of the package, the command line, the tests that every algorithm has to pass, the table in the README. So an
algorithm is added by a file of its own and a line of this table. `register` does the same from elsewhere.

A client finds its half of a message here as well. Imports read `import Krylov as Krylov`, for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from flower_pca.algorithms.auto import Auto
from flower_pca.algorithms.covariance import Covariance as Covariance
from flower_pca.algorithms.dr_svd import DRSVD as DRSVD
from flower_pca.algorithms.faps import FAPS as FAPS
from flower_pca.algorithms.fed_oapm import FedOAPM as FedOAPM
from flower_pca.algorithms.krylov import Krylov as Krylov
from flower_pca.algorithms.local_power import LocalPower as LocalPower
from flower_pca.algorithms.one_shot import UDA as UDA
from flower_pca.algorithms.one_shot import WDA as WDA
from flower_pca.algorithms.one_shot import DistPCA as DistPCA
from flower_pca.algorithms.personal.closing import PersonalClosing
from flower_pca.algorithms.personal.exact_per_pca import ExactPerPCA as ExactPerPCA
from flower_pca.algorithms.personal.per_pca import PerPCA as PerPCA
from flower_pca.algorithms.personal.result import PersonalResult
from flower_pca.algorithms.robust.closing import LowRank
from flower_pca.algorithms.robust.consensus_rpca import ConsensusRPCA as ConsensusRPCA
from flower_pca.algorithms.robust.dcf_pca import DCFPCA as DCFPCA
from flower_pca.algorithms.robust.result import RobustResult
from flower_pca.algorithms.ssi import SSI as SSI
from flower_pca.base import checks, spec
from flower_pca.base.errors import ConfigError, DataError, ProtocolError
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.result import PCAResult
from flower_pca.core.stage import Arrays, Stage
from flower_pca.dp import draw, noise
from flower_pca.dp.opening import PrivateOpening
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.stages import by_columns
from flower_pca.stages.evaluate import Evaluate
from flower_pca.stages.histograms import Histograms
from flower_pca.stages.opening import Opening
from flower_pca.stages.ritz import RayleighRitz
from flower_pca.stages.summed_opening import SummedOpening
from flower_pca.tracking.robust_tracking import RobustTracking as RobustTracking
from flower_pca.tracking.st_miss import STMiss as STMiss
from flower_pca.tracking.tracker import Tracker


@dataclass(frozen=True)
class Entry:
    """A line of the table.

    Attributes:
        algorithm: The algorithm's stage.
        closing: The stage that ends its run. Rayleigh-Ritz orders the components and measures them.
        result: What the finished run is returned as.
        remembers: Whether an answer is no good where what the client keeps is new, so that it cannot be so every time.
    """

    algorithm: type[Algorithm[Any]]
    closing: type[Stage[Any]] = RayleighRitz
    result: type[PCAResult] = PCAResult
    remembers: bool = False


TABLE: Final[dict[str, Entry]] = {
    entry.algorithm.name: entry
    for entry in (
        Entry(Krylov),
        Entry(SSI),
        Entry(LocalPower),
        Entry(FAPS, remembers=True),
        Entry(UDA),
        Entry(WDA),
        Entry(DRSVD),
        Entry(DistPCA),
        Entry(FedOAPM),
        Entry(Covariance),
        Entry(DCFPCA, LowRank, RobustResult),
        Entry(ConsensusRPCA, LowRank, RobustResult),
        Entry(PerPCA, PersonalClosing, PersonalResult, remembers=True),
        Entry(ExactPerPCA, PersonalClosing, PersonalResult),
    )
}
# Stages beside algorithm and closing that compare rows: a node's operator has to name them, as algorithms that do.
BESIDE: Final[dict[str, type[Stage[Any]]]] = {Histograms.name: Histograms}
TRACKERS: Final[dict[str, type[Tracker]]] = {tracker.name: tracker for tracker in (STMiss, RobustTracking)}

ALGORITHMS: Final[dict[str, type[Algorithm[Any]]]] = {name: entry.algorithm for name, entry in TABLE.items()}
CHOOSERS: Final[dict[str, type[Algorithm[Any]]]] = {"auto": Auto}  # of one of them: no message is of a chooser
STAGES: Final[dict[str, type[Stage[Any]]]] = {
    **ALGORITHMS,
    **{**TRACKERS, **by_columns.BOTH},
    **{stage.name: stage for stage in (Opening, PrivateOpening, SummedOpening, Evaluate, Histograms)},
    **{entry.closing.name: entry.closing for entry in TABLE.values()},
}


def register(
    algorithm: type[Algorithm[Any]],
    *,
    closing: type[Stage[Any]] = RayleighRitz,
    result: type[PCAResult] = PCAResult,
    remembers: bool = False,
) -> None:
    """Add an algorithm to the table from elsewhere, as an `Entry`: at the server, and likewise at every node."""
    TABLE[algorithm.name] = Entry(algorithm, closing, result, remembers)
    ALGORITHMS[algorithm.name] = STAGES[algorithm.name] = algorithm
    STAGES[closing.name] = closing


def shown() -> dict[str, type[Stage[Any]]]:
    """Algorithms and trackers by the names of their classes, which the package shows."""
    return {stage.__name__: stage for stage in (*ALGORITHMS.values(), *TRACKERS.values())}


def closing(algorithm: Algorithm[Any]) -> type[Stage[Any]]:
    """The stage that ends an algorithm's run."""
    return entry(type(algorithm)).closing


def result(algorithm: Algorithm[Any]) -> type[PCAResult]:
    """What the result of an algorithm's run is."""
    return entry(type(algorithm)).result


def leaves_own(algorithm: Algorithm[Any]) -> bool:
    """Whether a run of it leaves clients results of their own."""
    return closing(algorithm).own is not Stage.own


def rounds(algorithm: Algorithm[Any]) -> bool:
    """Whether answers may be rounded: where clients keep nothing, and the run ends by measuring the basis itself."""
    return closing(algorithm) is RayleighRitz and not entry(type(algorithm)).remembers


def over_air(stage: Stage[Any]) -> bool:
    """Whether sums will do that arrive with noise on them, as over the air.

    They do where the run ends by measuring the basis itself, so that the result says what the noise has done to it, and
    for trackers, which measure it at every step. Other closing stages take the noise for the clients' own.
    """
    measured = isinstance(stage, Tracker) or (isinstance(stage, Algorithm) and closing(stage) is RayleighRitz)
    return measured and not stage.sums_remedy


def require_over_air(stage: Stage[Any]) -> None:
    """Require a stage whose replies a channel can add up."""
    if not over_air(stage):
        rule, remedy = "one that sums replies", "Use fed_oapm, ssi, krylov or faps."
        raise ConfigError("An algorithm over the air", must=rule, got=stage.name, then=remedy)


def entry(algorithm: type[Any]) -> Entry:
    """The line of an algorithm, or of the nearest class above it that has one: an instance need not be listed."""
    for kind in algorithm.__mro__:
        found = TABLE.get(getattr(kind, "name", ""))
        if found is not None and found.algorithm is kind:
            return found
    return Entry(algorithm)


def make(algorithm: str | Algorithm[Any], **parameters: Any) -> Algorithm[Any]:
    """An algorithm from its name, a spec string such as "faps(inner_steps=5)", or an instance.

    **parameters are set beside those of the spec; the algorithm must have them.
    """
    table = {**ALGORITHMS, **CHOOSERS}
    made: Algorithm[Any] = _made("The algorithm", "faps(inner_steps=5)", table, Algorithm, algorithm, parameters)
    return made


def tracker(tracker: str | Tracker, **parameters: Any) -> Tracker:
    """A tracker, likewise: from its name, a spec string or an instance, with these parameters beside those of it."""
    made: Tracker = _made("The tracker", "st_miss(reuse=1)", TRACKERS, Tracker, tracker, parameters)
    return made


def _made(
    what: str, example: str, table: Mapping[str, Any], base: type[Any], given: Any, parameters: Mapping[str, Any]
) -> Any:
    if isinstance(given, base):
        checks.parameters(given.name, parameters, _parameters(type(given)))
        return replace(given, **parameters)
    name, own = given, dict[str, Any]()
    if not isinstance(given, str) or given not in table:
        name, own = spec.parse(given, what=what, rule=f'a name, an instance, or a spec such as "{example}"')
    if name not in table:
        remedy = checks.did_you_mean(name, table)
        raise ConfigError(what, must=f"one of {', '.join(table)}", got=repr(name), then=remedy)
    checks.parameters(name, {**own, **parameters}, _parameters(table[name]))
    return table[name](**{**own, **parameters})


def answer(
    stage: str,
    arrays: Arrays,
    data: Any,
    memory: Arrays,
    *,
    bits: draw.Bits = draw.system_bits,
    summed: int = 1,
    fixed: Callable[[LocalData], FixedData] | None = None,
) -> tuple[Arrays, Arrays]:
    """A client's half of the stage with this name: what it returns, and what it keeps.

    Where the message asks for noise, rows are clipped and noise is added here, from these random bits. Under masks
    nobody sees the answer but in a sum of at least `summed`. With `fixed`, halves that do not compare rows get what it
    gives in place of rows.
    """
    if stage not in STAGES:
        remedy = "Install the same flower_pca everywhere."
        raise ProtocolError("The stage", must=f"one of {', '.join(STAGES)}", got=repr(stage), then=remedy)
    if isinstance(data, Stream) != (stage in TRACKERS):
        rule, got = ("a Stream", "rows at rest") if stage in TRACKERS else ("rows at rest", "a Stream")
        remedy = "Serve Stream(rows, batch=60) to trackers, and rows to the others."
        raise ProtocolError(f"The data for {stage}", must=rule, got=got, then=remedy)
    if not noise.NAMES.isdisjoint(arrays):
        return noise.answer(STAGES[stage], arrays, data, memory, bits, summed=summed)
    if fixed is None or STAGES[stage].by_row:
        return STAGES[stage].client(arrays, data, memory)
    with np.errstate(all="ignore"):
        up, after = STAGES[stage].client(arrays, fixed(data), memory)
    if not all(np.isfinite(a).all() for a in up.values()):
        raise DataError("The answer of this node", must="finite", got="others", then="Check the frame and the block.")
    return up, after


def own(stage: str, memory: Arrays, data: Any) -> Arrays:
    """What a client's memory after the stage with this name amounts to as its own result; mostly nothing."""
    return STAGES[stage].own(memory, data)


def owners(stage: str) -> frozenset[str]:
    """The algorithms that the stage with this name belongs to; empty if it belongs to every run."""
    trackers = {stage} & set(TRACKERS)
    return frozenset(name for name, entry in TABLE.items() if stage in (name, entry.closing.name)) | trackers


def _parameters(stage: type[Stage[Any]]) -> list[str]:
    return [f.name for f in fields(stage)]
