"""The one place that decides which options and algorithms work together.

An option needs properties of the algorithm (`NEEDS`), and follows rules about other options (`RULES`).
Every pair of algorithm and option either runs or is refused here, before the first message. The error
says which property is missing and which algorithms have it. This module names no algorithm. It reads
the properties that their classes declare, and the caller passes the registered algorithms in. The
table in docs/choosing.md is generated from the same lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from flower_pca.base.checks import refused
from flower_pca.base.errors import ConfigError
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.algorithm import Iterative
from flower_pca.core.stage import Stage
from flower_pca.names.columns import enumeration
from flower_pca.settings.bits import BITS, FLOORS

# Options with their values, by the names of a configuration's fields
On: TypeAlias = Mapping[str, Any]
Listed: TypeAlias = Mapping[str, type[Stage[Any]]]

# A budget over more rounds leaves nothing but noise.
_NOISY_ROUNDS: Final = 100
_REACH: Final = "Give dp public ranges of the columns and leave scale out, or give reach."
_LEAVE: Final = "Leave it out."
_ONE: Final = "Leave one of them out."


@dataclass(frozen=True)
class Property:
    """A property of algorithms. `words` follow "one" in a message. `brief` is the reason for a refusal in the table."""

    brief: str
    words: str
    holds: Callable[[Stage[Any]], bool]


ADDITIVE: Final = Property("answers cannot be summed", "whose answers add up", lambda stage: stage.additive)
RICH: Final = Property(
    "it takes only the basic options", "that takes more than the basic options", lambda stage: not stage.basic
)
OVER_AIR: Final = Property(
    "it is not made for the air channel", "that the air channel is for", lambda stage: stage.over_air
)
BOUNDED: Final = Property(
    "the effect of one row has no bound",
    "whose answers no row can change by more than a bound",
    lambda stage: stage.bounded,
)
PRODUCTS: Final = Property(
    "it needs more than products of the rows", "that needs nothing but products", lambda stage: stage.products_only
)
CHANGING_CLIENTS: Final = Property(
    "the same clients must answer in every round",
    "whose rounds may go to other clients each time",
    lambda stage: not stage.fixed_set,
)
FORGETTING: Final = Property(
    "clients must keep a state between rounds",
    "whose clients may forget what they keep, as they do whenever others are asked",
    lambda stage: not stage.remembers,
)
UNCACHED: Final = Property(
    "the last answers of absent clients still count",
    "that needs no last answers of absent clients",
    lambda stage: not stage.caches,
)
MEASURED: Final = Property(
    "its components alone do not describe a row",
    "whose components alone describe a row and are measured at the end",
    lambda stage: stage.measured,
)
TOLERANT: Final = Property(
    "rounding errors accumulate", "without rounding errors that accumulate at clients", lambda stage: stage.tolerant
)
ORTHONORMAL: Final = Property(
    "its components are not orthonormal", "whose components are orthonormal", lambda stage: stage.orthonormal
)
POOLED: Final = Property(
    "its components are not those of all rows together",
    "whose components are those of all rows together",
    lambda stage: stage.pooled,
)
SHAREABLE: Final = Property(
    "answers are not sums of products",
    "in which a client can count for less than its rows",
    lambda stage: stage.by_medians or (stage.additive and stage.products_only),
)
NONE_OF_ITS_OWN: Final = Property(
    "the own components of a site already hold the site effect",
    "without own components of sites, because they describe what differs between sites",
    lambda stage: not stage.shares,
)
SHARING: Final = Property(
    "it has no shared and own components, or it removes outlying values",
    "whose clients have shared and own components, and which removes no outlying values",
    lambda stage: stage.shares,
)
ROWS_LESS_A_MEAN: Final = Property(
    "outlying values or medians of sites decide",
    "that removes no outlying values and uses no medians of sites",
    lambda stage: not (stage.by_row or stage.by_medians),
)
ITERATES: Final = Property("it does not iterate", "that iterates", lambda stage: isinstance(stage, Iterative))

# The phrases for options in messages. The default is "with" and the option's name.
_CALLED: Final[Mapping[str, str]] = {
    "mask": "under masks",
    "channel": "over the air",
    "wire": "with fewer bits",
    "partitioned_by": f"with {option('partitioned_by', 'columns')}",
    "fraction": "with a fraction of the clients",
    "standard_errors": "with errors",
    "signal": f"with {option('n_components', 'signal')}",
    "shared": f"with {option('n_components', 'shared')}",
    "init": "with a start",
}
# options that need more than a basic algorithm
_NOT_BASIC: Final = (
    "mask", "dp", "wire", "partitioned_by", "monitor", "standard_errors", "signal", "shared", "max_share",
)  # fmt: skip
_PROPERTIES: Final[Mapping[tuple[str, ...], tuple[Property, ...]]] = {
    ("mask",): (ADDITIVE,),
    ("channel",): (OVER_AIR,),
    ("dp",): (BOUNDED,),
    ("partitioned_by",): (PRODUCTS, ORTHONORMAL),
    ("fraction",): (CHANGING_CLIENTS,),
    ("mask", "fraction"): (FORGETTING, UNCACHED),
    ("monitor",): (MEASURED,),
    ("standard_errors",): (MEASURED, ORTHONORMAL, POOLED),
    ("explain",): (NONE_OF_ITS_OWN, MEASURED, ORTHONORMAL, POOLED),
    ("adjust",): (ROWS_LESS_A_MEAN,),
    ("harmonize",): (ROWS_LESS_A_MEAN, NONE_OF_ITS_OWN, POOLED),
    ("signal",): (MEASURED, ORTHONORMAL, POOLED),
    ("shared",): (SHARING,),
    ("wire",): (TOLERANT,),
    ("init",): (ITERATES, MEASURED),
    ("max_share",): (SHAREABLE,),
}
# The properties that options need of an algorithm. An entry with two options counts if both are on.
NEEDS: Final = (
    *(((option,), RICH) for option in _NOT_BASIC),
    *((options, wanted) for options, properties in _PROPERTIES.items() for wanted in properties),
)


@dataclass(frozen=True)
class Rule:
    """A rule for two options: `option` must have a certain value if `beside` is on, or else do what `then` says."""

    option: str
    beside: str
    must: str
    then: str = _LEAVE
    fits: Callable[[Any], bool] = lambda value: False


def _is_number(n_components: Any) -> bool:
    return not isinstance(n_components, str)


_LIST: Final = "Write a list of variants first, and read the files with this list: bed(path=..., variants=...)."
_SINGLE: Final = "because nobody sees the answer of a single client"
_MARKED: Final = "Choose genes first, and read cells with use_highly_variable=True."
RULES: Final[tuple[Rule, ...]] = (
    Rule("channel", "mask", "left out", _ONE),
    Rule(
        "scale",
        "mask",
        "None, 'std' or 'genotype', which follow from sums",
        "Use 'std'.",
        lambda scale: scale in ("std", "genotype"),
    ),
    Rule("monitor", "channel", "False, because counts cannot have noise on them", _ONE),
    Rule("standard_errors", "channel", "False, because the noise of the channel is not in them"),
    Rule("explain", "channel", "left out, because a share has no meaning with noise"),
    Rule("harmonize", "dp", "left out, because the scale of a site without noise would tell about single rows"),
    Rule("harmonize", "channel", "left out, because its sums cannot have noise on them"),
    Rule("harmonize", "partitioned_by", "left out, because each party has columns of its own"),
    Rule("harmonize", "max_share", "left out, because it counts whole rows"),
    Rule("adjust", "harmonize", "left out, because harmonizing removes the site already", _ONE),
    Rule(
        "categorical",
        "harmonize",
        "left out, because levels are divided by the root of a share",
        "Code them as numbers.",
    ),
    Rule(
        "scale",
        "harmonize",
        'None or "std", because other scales are of values as they were before',
        'Use "std".',
        lambda scale: scale == "std",
    ),
    Rule(
        "missing", "harmonize", '"error", because locations and scales come from whole rows', "Impute before the run."
    ),
    Rule("fraction", "harmonize", "1.0, because all sites are harmonized together"),
    Rule("monitor", "harmonize", "False, because the rows of the run have set their own means"),
    Rule("standard_errors", "harmonize", "False, because the errors of locations and scales are not in them"),
    Rule(
        "n_components",
        "harmonize",
        "a number, because signs are flipped about means of all rows",
        "Name one.",
        _is_number,
    ),
    Rule("adjust", "dp", "left out, because slopes without noise would tell about single rows"),
    Rule("adjust", "partitioned_by", "left out, because each party has columns of its own"),
    Rule("adjust", "max_share", "left out, because slopes count whole rows"),
    Rule(
        "categorical", "adjust", "left out, because levels are divided by the root of a share", "Code them as numbers."
    ),
    Rule(
        "scale",
        "adjust",
        'None or "std", because other scales are of values as they were before',
        'Use "std".',
        lambda scale: scale == "std",
    ),
    Rule(
        "n_components", "adjust", "a number, because signs are flipped about means of all rows", "Name one.", _is_number
    ),
    Rule("standard_errors", "adjust", "False, because the errors of the slopes are not in them"),
    Rule("wire", "channel", '"float64" or "auto", because there is noise on the answers'),
    Rule("wire", "dp", '"float64" or "auto", because there is noise on the answers'),
    Rule("n_components", "dp", "a whole number", "Name a number.", lambda k: isinstance(k, int)),
    Rule("n_components", "channel", "a number, because noise on sums would count as well", "Name one.", _is_number),
    Rule(
        "n_components",
        "partitioned_by",
        "a number, because signs are flipped about means of all rows",
        "Name one.",
        _is_number,
    ),
    Rule("n_components", "init", "a number, because it says how much of the start is used", "Name one.", _is_number),
    Rule("scale", "dp", 'None or "std"', "A largest value cannot be told privately.", lambda scale: scale == "std"),
    Rule("missing", "dp", '"error"', "Impute before the run, or give dp ranges."),
    Rule("reconstruction_error", "dp", "False", "An exact error would tell about single rows."),
    Rule("monitor", "dp", "False", "Exact counts would tell about single rows."),
    Rule("categorical", "dp", "left out, because which levels there are is told exactly"),
    Rule("standard_errors", "dp", "False", "Exact sums of squares would tell about single rows."),
    Rule("explain", "dp", "left out, because a share has no meaning with noise"),
    Rule("checkpoint", "dp", "left out", "Start a new run with a budget of its own."),
    Rule("dp", "partitioned_by", "left out, because hiding one person would need noise on all scores"),
    Rule("channel", "partitioned_by", "left out, because each party's loadings need the exact scores"),
    Rule(
        "columns",
        "partitioned_by",
        "left out, because each party has columns of its own",
        "Name them where each party reads its table.",
    ),
    Rule(
        "categorical",
        "partitioned_by",
        "left out, because each party codes columns of its own",
        "Code them where it reads its table.",
    ),
    Rule("fraction", "partitioned_by", "1.0, because no other party has the columns of a party that is absent"),
    Rule(
        "reconstruction_error",
        "partitioned_by",
        "False, because left_out_variance_ already gives it exactly",
        "Read left_out_variance_.",
    ),
    Rule("monitor", "partitioned_by", "False, because limits for new people need the columns of all parties"),
    Rule("standard_errors", "partitioned_by", "False, because the loadings stay with the parties"),
    Rule("explain", "partitioned_by", "left out, because each party has columns of its own"),
    Rule("wire", "partitioned_by", '"float64", because loadings are made of the scores that are sent'),
    Rule("init", "partitioned_by", "left out, because a run over columns begins with scores of people"),
    Rule("variants", "dp", "left out, because exact counts of alleles would tell about single rows", _LIST),
    Rule("variants", "channel", "left out, because counts of alleles cannot have noise on them", _LIST),
    Rule("variants", "partitioned_by", "left out, because each party has variants of its own"),
    Rule("variants", "explain", "left out, because it is about all columns", _LIST),
    Rule("variants", "adjust", "left out, because it is about all columns", _LIST),
    Rule("variants", "harmonize", "left out, because it is about all columns", _LIST),
    Rule("variants", "init", "left out, because the start says which columns there are"),
    Rule("categorical", "variants", "left out, because words count no alleles"),
    Rule("highly_variable", "dp", "left out, because exact sums of genes would tell about single cells", _MARKED),
    Rule("highly_variable", "channel", "left out, because sums of genes cannot have noise on them", _MARKED),
    Rule("highly_variable", "partitioned_by", "left out, because each party has genes of its own"),
    Rule("highly_variable", "explain", "left out, because it is about all columns", _MARKED),
    Rule("highly_variable", "adjust", "left out, because it is about all columns", _MARKED),
    Rule("highly_variable", "harmonize", "left out, because it is about all columns", _MARKED),
    Rule("highly_variable", "init", "left out, because the start says which columns there are"),
    Rule("categorical", "highly_variable", "left out, because words are no counts"),
    Rule("missing", "highly_variable", '"error", because counts have no missing values'),
    Rule("highly_variable", "variants", "left out, because genes are no variants", _ONE),
    Rule("max_share", "mask", f"left out, {_SINGLE}", _ONE),
    Rule("max_share", "dp", "left out, because the noise on answers would be scaled too"),
    Rule("max_share", "channel", f"left out, {_SINGLE}", _ONE),
    Rule("max_share", "partitioned_by", "left out, because each party has columns of its own"),
    Rule("scale", "max_share", "None or 'std'", "A largest value is one client's.", lambda scale: scale == "std"),
    Rule("monitor", "max_share", "False, because limits count whole rows"),
    Rule("standard_errors", "max_share", "False, because they count whole rows"),
    Rule("explain", "max_share", "left out, because it counts whole rows"),
)


def check(stage: Stage[Any], on: On, listed: Listed) -> None:
    """Refuse options that do not work together, or with the algorithm.

    Parameters
    ----------
    stage : Stage
        The algorithm or the tracker.
    on : On
        The options with their values.
    listed : Listed
        All algorithms, so that an error can name those that have a missing property.
    """
    for options, wanted in NEEDS:
        if set(options) <= on.keys() and not wanted.holds(stage):
            where = " and ".join([called(option) for option in options])
            best = (name for name, kind in listed.items() if not missing(kind(), *on))
            have = {name: kind for name, kind in listed.items() if _variant(kind, wanted)}
            # Algorithms that suit all other options come first, because the others would be refused for one of them.
            fit = {name: kind for name, kind in have.items() if set(missing(kind(), *on)) <= {wanted}}
            require(f"The algorithm {where}", stage, wanted, best, fit or have)
    check_options(on)
    _check_numbers(stage, on)


def require(what: str, stage: Stage[Any], wanted: Property, best: Iterator[str], listed: Listed) -> None:
    """Require a property of an algorithm. The error names the algorithms that have it."""
    if wanted.holds(stage):
        return
    have = ", ".join(filter(None, (_variant(kind, wanted) for kind in listed.values())))
    if own := _variant(type(stage), wanted):
        remedy = f"Use {own}, with its other parameters as they usually are."
    else:
        remedy = f"Use {next(best, 'another')}."
    raise ConfigError(f"{what} must be one {wanted.words}: {have}. Got {stage.spec}. {remedy}")


def missing(stage: Stage[Any], *options: str) -> list[Property]:
    """Return the properties that these options need and the algorithm lacks. For a basic algorithm, return
    only that one.
    """
    names = set(options)
    lacks = [wanted for named, wanted in NEEDS if set(named) <= names and not wanted.holds(stage)]
    return [RICH] if RICH in lacks else lacks


def check_options(on: On) -> None:
    """Refuse options that do not work together with any algorithm."""
    for rule in RULES:
        if not (rule.option in on and rule.beside in on) or rule.fits(on[rule.option]):
            continue
        # Each party scales its own columns, and nothing is summed.
        apart = rule.option == "scale" and "partitioned_by" in on
        # With public ranges, a constant replaces a missing value.
        constant = (
            rule.option == "missing" and rule.beside == "dp" and on["missing"] == "mean" and on["dp"].public_ranges
        )
        if not (apart or constant):
            raise refused(f"{rule.option} {called(rule.beside)}", rule.must, _given(on[rule.option]), rule.then)
    if "dp" in on:
        _check_budget(on)


def called(name: str) -> str:
    """Return what a message calls an option, for example "with monitor" or "under masks"."""
    return _CALLED.get(name, f"with {name}")


def _given(value: Any) -> str:
    """Write a value for a message. Columns are written by their names, without their levels."""
    if isinstance(value, tuple):
        return enumeration(one if isinstance(one, str) else str(one[0]) for one in value)
    return shown(value)


def _check_budget(on: On) -> None:
    dp, mask = on["dp"], on.get("mask")
    if dp.public_ranges and "scale" in on:
        raise ConfigError(
            f"{option('scale')} ({shown(on['scale'])}) cannot be combined with ranges of dp, because the ranges "
            "already scale the columns. Leave scale out.",
            setting="scale",
        )
    if "scale" in on and dp.reach is None:
        raise ConfigError(f"With a scale, dp needs reach, a bound on the raw rows. {_REACH}")
    if mask is not None and mask.bound is not None:
        raise ConfigError(f"With dp, the noise sets the bound of the masks. Leave bound={mask.bound} out.")
    if mask is not None and not mask.self_masks:
        raise ConfigError(
            "With dp self_masks cannot be False, because the server could open an upload that comes late, with only "
            "its share of the noise. Leave self_masks out."
        )


def _check_numbers(stage: Stage[Any], on: On) -> None:
    """Refuse more rounds than a privacy budget can pay for, and a tol finer than the bits allow."""
    if not isinstance(stage, Iterative):
        return
    if "dp" in on and stage.max_rounds > _NOISY_ROUNDS:
        given = f"{stage.max_rounds}"
        if stage.max_rounds == type(stage).max_rounds:
            given = f"{given}, the default of {stage.spec.partition('(')[0]}"
        raise ConfigError(
            f"{option('max_rounds')} is at most {_NOISY_ROUNDS} with dp, because every round takes a part of the "
            f"budget, but it is {given}. Start with {option('max_rounds', 5)}.",
            setting="max_rounds",
        )
    if "wire" in on and stage.tolerance < (least := FLOORS[BITS[on["wire"]]]):
        raise ConfigError(
            f"{option('tol')} of {stage.name} is {stage.tolerance:g}, which {option('wire', on['wire'])} cannot "
            f"reach: the smallest possible tol is {least:g}. Raise tol, or use {option('wire', 'auto')}.",
            setting="tol",
        )


def _variant(kind: type[Stage[Any]], wanted: Property) -> str:
    """Return an algorithm's spec that has the property, or "" if there is none."""
    if wanted.holds(kind()):
        return kind.name
    if wanted is ADDITIVE and kind.additive_with:
        return f"{kind.name}({kind.additive_with})"
    return ""
