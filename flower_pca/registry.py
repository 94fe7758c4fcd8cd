"""The table of algorithms, each with its closing stage and the class of its result.

Everything that finds algorithms by name uses this table: `make` and spec strings, Flower's strategies
and clients, the names of the package, the command line, the tests that every algorithm must pass, and
the tables in the documentation. To add an algorithm to the package, write a file for it and add a line
to this table. Other packages add their algorithms with `register`.

The table stores the places of classes, and imports a class when it is first needed, because a run needs
only a few classes.
"""

from __future__ import annotations

import importlib
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flower_pca.base import checks, labels, spec
from flower_pca.base.errors import ConfigError
from flower_pca.base.shown import shown
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.layer import Layer
from flower_pca.core.model import ResultClass
from flower_pca.core.stage import Stage
from flower_pca.layers import NOISE, PARTIES, SINGLE, WIRE
from flower_pca.stages.opening import Opening
from flower_pca.stages.ritz import RayleighRitz

if TYPE_CHECKING:
    from flower_pca.tracking.tracker import Tracker


V = TypeVar("V")


def import_object(path: str) -> Any:
    """Import and return the object at a place in the package, such as "algorithms.krylov:Krylov"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"flower_pca.{module}"), name)


class LazyTable(MutableMapping[str, V]):
    """A mapping that makes each of its values with a function, when the value is first read.

    Listing, counting and testing names do not make any value.
    """

    def __init__(self, makers: Mapping[str, Callable[[], V]]) -> None:
        self._makers = {name: cache(make) for name, make in makers.items()}

    def __getitem__(self, name: str) -> V:
        return self._makers[name]()

    def __setitem__(self, name: str, value: V) -> None:
        self._makers[name] = cache(lambda: value)

    def __delitem__(self, name: str) -> None:
        del self._makers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def lazy_classes(paths: Mapping[str, str]) -> LazyTable[Any]:
    """Return a lazy mapping from names to the classes at these places."""
    return LazyTable({name: partial(import_object, place) for name, place in paths.items()})


_RESULT: Final = "results.pca:PCAResult"  # a place instead of the class, because clients need not import it
_OPENING: Final = "stages.opening:Opening"


@dataclass(frozen=True)
class Entry:
    """An algorithm in the table, with the classes of its run.

    Attributes
    ----------
    algorithm : type
        The algorithm's stage.
    closing : type
        The stage that ends the algorithm's run. The default, Rayleigh-Ritz, orders the components and computes their
        eigenvalues.
    result : ResultClass
        The class of the result.
    opening : type
        The opening of the algorithm's run, if the server sees individual answers.
    """

    algorithm: type[Algorithm[Any]]
    closing: type[Stage[Any]] = RayleighRitz
    result: ResultClass = field(default_factory=partial(import_object, _RESULT))
    opening: type[Opening] = Opening


@dataclass(frozen=True)
class _EntryPlaces:
    """The places of an entry's classes in the package, and the name of its closing stage."""

    at: str
    closing: str = RayleighRitz.name
    result: str = _RESULT
    opening: str = _OPENING

    def entry(self) -> Entry:
        return Entry(
            import_object(self.at), STAGES[self.closing], import_object(self.result), import_object(self.opening)
        )


_ROBUST: Final = ("low_rank", "results.robust:RobustResult")
_PERSONAL: Final = ("personal", "results.personal:PersonalResult")
_LINES: Final = {
    "krylov": _EntryPlaces("algorithms.krylov:Krylov"),
    "ssi": _EntryPlaces("algorithms.ssi:SSI"),
    "local_power": _EntryPlaces("algorithms.local_power:LocalPower"),
    "faps": _EntryPlaces("algorithms.faps:FAPS"),
    "uda": _EntryPlaces("algorithms.one_shot:UDA"),
    "wda": _EntryPlaces("algorithms.one_shot:WDA"),
    "dr_svd": _EntryPlaces("algorithms.dr_svd:DRSVD"),
    "dist_pca": _EntryPlaces("algorithms.one_shot:DistPCA"),
    "fed_oapm": _EntryPlaces("algorithms.fed_oapm:FedOAPM"),
    "median_pca": _EntryPlaces(
        "algorithms.median_pca:MedianPCA", "medians", "results.robust:MedianResult", "stages.weighing:MedianOpening"
    ),
    "covariance": _EntryPlaces("algorithms.covariance:Covariance"),
    "sparse_pca": _EntryPlaces("algorithms.sparse_pca:SparsePCA", "oblique"),
    "dcf_pca": _EntryPlaces("algorithms.robust.dcf_pca:DCFPCA", *_ROBUST),
    "consensus_rpca": _EntryPlaces("algorithms.robust.consensus_rpca:ConsensusRPCA", *_ROBUST),
    "exact_per_pca": _EntryPlaces("algorithms.personal.exact_per_pca:ExactPerPCA", *_PERSONAL),
    "per_pca": _EntryPlaces("algorithms.personal.per_pca:PerPCA", *_PERSONAL),
    "triple_pca": _EntryPlaces("algorithms.personal.triple_pca:TriplePCA", "triple", "results.personal:TripleResult"),
}
_TRACKERS: Final = {"st_miss": "tracking.st_miss:STMiss", "robust_tracking": "tracking.st_miss:RobustTracking"}
_AFTER_CLOSING: Final = {
    "monitor": "stages.histograms:Histograms",
    "standard_errors": "stages.standard_errors:StandardErrors",
}
# The stages that may follow the closing stage, in their order, by the field of a PCAConfig that requests them
AFTER: Final = {"reconstruction_error": "evaluate", "explain": "explain", **{name: name for name in _AFTER_CLOSING}}
_COMPONENT_COUNTS: Final = {"signal": "stages.signal:Signal", "shared": "algorithms.personal.shared:Shared"}
_COLUMN_CHOICE: Final = {
    "gene_sums": "stages.gene_sums:GeneSums",
    "hardy_weinberg": "stages.hardy_weinberg:HardyWeinberg",
}
_OPENING_ONLY: Final = {"standardize": "stages.opening:ScalingOnly"}
_OTHERS: Final = {
    "opening": _OPENING,
    "private_opening": "stages.private_opening:PrivateOpening",
    "summed_opening": "stages.summed_opening:SummedOpening",
    "harmonized_opening": "stages.harmonized_opening:HarmonizedOpening",
    "harmonized_summed_opening": "stages.harmonized_opening:HarmonizedSummedOpening",
    "adjusted_opening": "stages.adjusted_opening:AdjustedOpening",
    "adjusted_summed_opening": "stages.adjusted_opening:AdjustedSums",
    "ritz": "stages.ritz:RayleighRitz",
    "oblique": "stages.oblique:Oblique",
    "evaluate": "stages.evaluate:Evaluate",
    "explain": "stages.explained:Explained",
    "names": "stages.agreed:Naming",
    "medians": "algorithms.median_pca:MedianVariances",
    "columns_opening": "vertical.stages:ColumnsOpening",
    "loadings": "vertical.stages:LoadingsStage",
    "low_rank": "algorithms.robust.closing:LowRank",
    "personal": "algorithms.personal.closing:PersonalClosing",
    "triple": "algorithms.personal.triple_pca:TripleClosing",
}
_PLACES: Final = {
    **{name: line.at for name, line in _LINES.items()},
    **_TRACKERS,
    **_AFTER_CLOSING,
    **_COMPONENT_COUNTS,
    **_COLUMN_CHOICE,
    **_OPENING_ONLY,
    **_OTHERS,
}

TABLE: Final[MutableMapping[str, Entry]] = LazyTable({name: line.entry for name, line in _LINES.items()})
ALGORITHMS: Final[MutableMapping[str, type[Algorithm[Any]]]] = lazy_classes({n: _PLACES[n] for n in _LINES})
TRACKERS: Final[MutableMapping[str, type[Tracker]]] = lazy_classes(_TRACKERS)
# Stages that a node's operator must allow by name, like algorithms, because they compare rows
EXTRA_STAGES: Final[MutableMapping[str, type[Stage[Any]]]] = lazy_classes(
    {**_AFTER_CLOSING, **_COMPONENT_COUNTS, **_COLUMN_CHOICE}
)
# Stages before the algorithm that find the number of components. Their names are values of `n_components`.
COUNTING: Final[MutableMapping[str, type[Stage[Any]]]] = lazy_classes(_COMPONENT_COUNTS)
# Stages that follow an opening in runs without an algorithm
OPENING_ONLY: Final[MutableMapping[str, type[Stage[Any]]]] = lazy_classes(_OPENING_ONLY)
# Choosers, which select one of the algorithms for a run. No message contains the name of a chooser.
CHOOSERS: Final[MutableMapping[str, type[Algorithm[Any]]]] = lazy_classes({"auto": "algorithms.covariance:Auto"})
STAGES: Final[MutableMapping[str, type[Stage[Any]]]] = lazy_classes(_PLACES)
# A client reads a message in this order, and processes its answer in the reverse order.
LAYERS: Final[Mapping[str, type[Layer]]] = lazy_classes(
    {
        WIRE: "layers.precision:Precision",
        SINGLE: "layers.single:NumberTables",
        NOISE: "layers.noise:BudgetLayer",
        PARTIES: "vertical.rows:PartyCounts",
    }
)

# The names of the algorithms by the name of their closing stage. This table needs no imports.
_CLOSED_BY: Final[dict[str, set[str]]] = {}
for _name, _line in _LINES.items():
    _CLOSED_BY.setdefault(_line.closing, set()).add(_name)


def register(
    algorithm: type[Algorithm[Any]], *, closing: type[Stage[Any]] | None = None, result: ResultClass | None = None
) -> None:
    """Add an algorithm to the table. The server and every node must call this function.

    By default, the result is a `PCAResult`, and the closing stage is the Rayleigh-Ritz step, or
    `Oblique` for components that are not orthonormal.

    Raises
    ------
    ConfigError
        If the closing stage would rotate components that are not orthonormal, or if the name of an array has a dot.
    """
    if dotted := [name for name in algorithm.asks if "." in name]:
        # Such names would look like the names of arrays of a layer, of the frame or of masks.
        raise ConfigError(f"The arrays of {algorithm.name} have names with a dot: {', '.join(dotted)}. Rename them.")
    closing = closing or _default_closing(algorithm)
    if issubclass(closing, RayleighRitz) and not algorithm.orthonormal:
        raise ConfigError(
            f"The closing stage {closing.name} rotates components, which works only if they are orthonormal, but the "
            f"components of {algorithm.name} are not orthonormal. Leave the closing stage out."
        )
    TABLE[algorithm.name] = Entry(algorithm, closing, result or import_object(_RESULT))
    _CLOSED_BY.setdefault(closing.name, set()).add(algorithm.name)
    ALGORITHMS[algorithm.name] = STAGES[algorithm.name] = algorithm
    STAGES[closing.name] = closing


def public_classes() -> Mapping[str, type[Stage[Any]]]:
    """Return the algorithms and trackers by the names of their classes, which the package exports."""
    names = (*ALGORITHMS, *TRACKERS)
    return LazyTable({_class_name(name): partial(STAGES.__getitem__, name) for name in names})


def _class_name(stage: str) -> str:
    # For a listed stage, the name of the class is known without an import.
    if stage in _PLACES:
        return _PLACES[stage].partition(":")[2]
    return STAGES[stage].__name__


def closing_of(algorithm: Algorithm[Any]) -> type[Stage[Any]]:
    """Return the stage that ends an algorithm's run."""
    return entry_of(type(algorithm)).closing


def has_local_results(algorithm: Algorithm[Any]) -> bool:
    """Return whether each client gets its own result from a run of this algorithm."""
    return closing_of(algorithm).local_results is not Stage.local_results


def entry_of(algorithm: type[Any]) -> Entry:
    """Return the table's entry of an algorithm. An unlisted class gets the entry of its nearest listed base class."""
    for kind in algorithm.__mro__:
        found = TABLE.get(getattr(kind, "name", ""))
        # The class is compared, too, because an unlisted class may have inherited its name from a listed one.
        if found is not None and found.algorithm is kind:
            return found
    return Entry(algorithm, _default_closing(algorithm))


def _default_closing(algorithm: type[Algorithm[Any]]) -> type[Stage[Any]]:
    """Return the closing stage for an algorithm without its own.

    It is `Oblique` if the components are not orthonormal, because the Rayleigh-Ritz step rotates components.
    """
    return STAGES[RayleighRitz.name if algorithm.orthonormal else "oblique"]


def make(algorithm: str | Algorithm[Any], **parameters: Any) -> Algorithm[Any]:
    """Return an algorithm from its name, a spec string such as "faps(inner_steps=5)", or an instance.

    Parameters
    ----------
    algorithm : str or Algorithm
        The name ("krylov"), the spec string ("krylov(tol=1e-8)") or the instance.
    **parameters
        Parameters of the algorithm, in addition to the parameters in the spec string.

    Returns
    -------
    Algorithm
        The algorithm with these parameters.

    Raises
    ------
    ConfigError
        If there is no such algorithm, or if it has no such parameter.

    Examples
    --------
    >>> from flower_pca import make
    >>> make("ssi(tol=1e-8)", max_rounds=100).tol
    1e-08
    """
    table = ChainMap(CHOOSERS, ALGORITHMS)
    made: Algorithm[Any] = _make("The algorithm", "faps(inner_steps=5)", table, Algorithm, algorithm, **parameters)
    return made


def tracker(tracker: str | Tracker, **parameters: Any) -> Tracker:
    """Return a tracker from its name, a spec string or an instance, in the same way as `make`."""
    from flower_pca.tracking.tracker import Tracker

    made: Tracker = _make("The tracker", "st_miss(reuse=1)", TRACKERS, Tracker, tracker, **parameters)
    return made


def _make(
    what: str, example: str, table: Mapping[str, Any], base: type[Any], algorithm: Any, /, **parameters: Any
) -> Any:
    if isinstance(algorithm, base):
        checks.parameters(algorithm.name, parameters, _parameter_names(type(algorithm)))
        return replace(algorithm, **parameters)
    name, own, kind = algorithm, dict[str, Any](), None
    with suppress(KeyError, TypeError):  # `given` may not be a bare name.
        kind = table[algorithm]
    if kind is None:
        name, own = spec.parse(algorithm, what=what, rule=f'a name, an instance, or a spec such as "{example}"')
        if name not in table:
            _require_right_table(name)
            noun = what.removeprefix("The ")
            remedy = checks.did_you_mean(name, table, otherwise=f"The {noun}s are {labels.join_with_and(list(table))}.")
            raise ConfigError(f"There is no {noun} named {shown(name)}. {remedy}", setting=noun, value=name)
        kind = table[name]
    if own or parameters:
        checks.parameters(name, {**own, **parameters}, _parameter_names(kind))
    return kind(**{**own, **parameters})


def _require_right_table(name: str) -> None:
    """Raise ConfigError for a tracker in place of an algorithm, or vice versa. The error says where it can be used."""
    if name in TRACKERS:
        raise ConfigError(
            f"{name} follows rows over time. Use it with `flower-pca track`, or in Python with track or "
            f"TrackingStrategy."
        )
    if name in CHOOSERS or name in ALGORITHMS:
        raise ConfigError(
            f"{name} does not follow rows over time. Use it with `flower-pca run`, or in Python with simulate or "
            f"PCAStrategy."
        )


def is_tracker(algorithm: str) -> bool:
    """Return whether a name or a spec string stands for a tracker."""
    return algorithm.split("(")[0].strip() in TRACKERS


def algorithms_of_stage(stage: str) -> frozenset[str]:
    """Return the names of the algorithms or trackers to which a stage belongs.

    For a stage that any run can contain, such as the evaluation, the set is empty.
    """
    named = {stage, *_CLOSED_BY.get(stage, ())}
    return frozenset([name for name in named if name in TABLE or name in TRACKERS])


def _parameter_names(stage: type[Stage[Any]]) -> list[str]:
    return [f.name for f in fields(stage)]
