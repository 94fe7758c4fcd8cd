"""The rules that decide which options and algorithms work together.

An option needs properties of the algorithm (`NEEDS`), and follows rules about other options (`RULES`).
Every pair of algorithm and option either runs or is refused here, before the first message. The error
gives the reason, and names algorithms that support the option. This module does not depend on any
algorithm. It reads the properties that the algorithms' classes declare, and the caller passes all
registered algorithms. The page docs/compatibility.md is generated from the same lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import join_with_and, join_with_or
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.algorithm import Iterative
from flower_pca.core.stage import Stage
from flower_pca.settings.bits import BITS, FLOORS

# `On` maps names of options, which are fields of a configuration, to their values. `Listed` maps names to algorithms.
On: TypeAlias = Mapping[str, Any]
Listed: TypeAlias = Mapping[str, type[Stage[Any]]]

# If a privacy budget is divided among more rounds than this, the result is only noise.
_NOISY_ROUNDS: Final = 100
_REACH: Final = "Give dp public ranges of the columns and leave scale out, or give reach."


@dataclass(frozen=True)
class Property:
    """A property of algorithms.

    `brief` is the reason that errors (after "because") and the documentation give if an algorithm lacks it.
    """

    brief: str
    holds: Callable[[Stage[Any]], bool]


ADDITIVE: Final = Property("its answers cannot be summed", lambda stage: stage.additive)
RICH: Final = Property("it takes only the basic options", lambda stage: not stage.basic)
OVER_AIR: Final = Property("it is not designed for a noisy channel", lambda stage: stage.over_air)
BOUNDED: Final = Property("the effect of one row on its answers has no bound", lambda stage: stage.bounded)
PRODUCTS: Final = Property("it needs more than products of the rows", lambda stage: stage.products_only)
CHANGING_CLIENTS: Final = Property("the same clients must answer in every round", lambda stage: not stage.fixed_set)
FORGETTING: Final = Property("its clients keep a state between rounds", lambda stage: not stage.remembers)
UNCACHED: Final = Property(
    "clients that do not answer still count with their last answer", lambda stage: not stage.caches
)
MEASURED: Final = Property("its components alone do not describe a row", lambda stage: stage.measured)
TOLERANT: Final = Property("its rounding errors accumulate", lambda stage: stage.tolerant)
ORTHONORMAL: Final = Property("its components are not orthonormal", lambda stage: stage.orthonormal)
POOLED: Final = Property("its components are not the components of all rows together", lambda stage: stage.pooled)
SHAREABLE: Final = Property(
    "its answers are not sums of products", lambda stage: stage.by_medians or (stage.additive and stage.products_only)
)
NONE_OF_ITS_OWN: Final = Property(
    "the local components of a site already contain the site effect", lambda stage: not stage.shares
)
SHARING: Final = Property("it does not choose between shared and local components", lambda stage: stage.shares)
ROWS_LESS_A_MEAN: Final = Property(
    "it removes outlying values or uses medians of sites", lambda stage: not (stage.by_row or stage.by_medians)
)
ITERATES: Final = Property("it does not iterate", lambda stage: isinstance(stage, Iterative))

_MOST: Final = 3  # maximum number of algorithms that an error suggests
# Messages show these options with their values.
_SHOWN_WITH_VALUE: Final = ("n_components", "scale", "missing", "wire", "partitioned_by")
# A basic algorithm does not support these options.
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
# Each entry names options and a property that they require. An entry with two options applies if both are given.
NEEDS: Final = (
    *(((option,), RICH) for option in _NOT_BASIC),
    *((options, wanted) for options, properties in _PROPERTIES.items() for wanted in properties),
)


@dataclass(frozen=True)
class Rule:
    """A rule for two options: `option` cannot be combined with `beside`, unless the value of `option` fits.

    Attributes
    ----------
    option : str
        The option that is refused.
    beside : str
        The option with which it cannot be combined.
    because : str
        The reason, which messages show after a colon.
    then : str
        The remedy, or "" for "Leave <option> out."
    allowed : str
        The values that fit, as the table in the documentation shows them, or "" if no value fits.
    fits : callable
        A function that returns whether a value of the option fits.
    """

    option: str
    beside: str
    because: str
    then: str = ""
    allowed: str = ""
    fits: Callable[[Any], bool] = lambda value: False


def _scale_rule(other_option: str, reason: str, *values: str) -> Rule:
    then = f"Use {' or '.join(option('scale', value) for value in values)}."
    allowed = " or ".join(f'"{value}"' for value in values)
    return Rule("scale", other_option, reason, then, allowed, lambda scale: scale in values)


def _number_rule(other_option: str, reason: str) -> Rule:
    then = f"Give a number, for example {option('n_components', 2)}."
    return Rule("n_components", other_option, reason, then, "a number", lambda given: not isinstance(given, str))


_LIST: Final = "Write a list of variants first, and read the files with this list: bed(path=..., variants=...)."
_SINGLE: Final = "the server does not see the answer of a single client"
_CELLS: Final = "Choose genes first, and read cells with use_highly_variable=True."
_SIGNS: Final = "the number of components is estimated from rows around the mean of all rows"
_CODED: Final = "indicator columns of texts have a scale of their own"
_CODE: Final = "Code these columns as numbers."
_RAW: Final = "other scales are computed from the values before the correction"
_PARTY: Final = "each party has different columns"
_NOISED: Final = "exact {} would reveal information about single rows"
_WHOLE: Final = "it counts every row with the same weight"
_EVERY: Final = "{} applies to all columns, before any are selected"
_START: Final = "the start sets the columns"
_CHANNEL: Final = "the channel adds noise to every sum, and {}"
_MESSAGES: Final = "answers with noise are sent in full precision"
RULES: Final[tuple[Rule, ...]] = (
    Rule("channel", "mask", "the channel adds analog values, and masks need exact sums"),
    _scale_rule("mask", "other scales do not follow from sums", "std", "genotype"),
    Rule("monitor", "channel", _CHANNEL.format("counts must be exact")),
    Rule("standard_errors", "channel", _CHANNEL.format("the errors would not include this noise")),
    Rule("explain", "channel", _CHANNEL.format("an explained share has no meaning with it")),
    Rule("harmonize", "dp", _NOISED.format("scales of a site")),
    Rule("harmonize", "channel", _CHANNEL.format("means and scales of sites must be exact")),
    Rule("harmonize", "partitioned_by", _PARTY),
    Rule("harmonize", "max_share", _WHOLE),
    Rule("adjust", "harmonize", "harmonizing already removes the site effects"),
    Rule("categorical", "harmonize", _CODED, _CODE),
    _scale_rule("harmonize", _RAW, "std"),
    Rule("missing", "harmonize", "means and scales of sites need complete rows", "Impute before the run."),
    Rule("fraction", "harmonize", "all sites are harmonized together"),
    Rule("monitor", "harmonize", "the site means come from the same rows, so the limits would be too low"),
    Rule("standard_errors", "harmonize", "they would ignore the uncertainty of the site means and scales"),
    _number_rule("harmonize", _SIGNS),
    Rule("adjust", "dp", _NOISED.format("slopes")),
    Rule("adjust", "partitioned_by", _PARTY),
    Rule("adjust", "max_share", _WHOLE),
    Rule("categorical", "adjust", _CODED, _CODE),
    _scale_rule("adjust", _RAW, "std"),
    _number_rule("adjust", _SIGNS),
    Rule("standard_errors", "adjust", "they would ignore the uncertainty of the slopes"),
    Rule("wire", "channel", _MESSAGES),
    Rule("wire", "dp", _MESSAGES),
    Rule(
        "n_components",
        "dp",
        "noisy variances cannot choose the number",
        f"Give a whole number, for example {option('n_components', 2)}.",
        "a whole number",
        lambda k: isinstance(k, int),
    ),
    _number_rule("channel", _CHANNEL.format("this noise would count as components")),
    _number_rule("partitioned_by", _SIGNS),
    _number_rule("init", "the number says how many rows of the start are used"),
    _scale_rule("dp", "only standard deviations are computed with noise", "std"),
    Rule(
        "missing",
        "dp",
        "a mean in place of missing values depends on all rows, so the effect of one row has no bound",
        f"Impute before the run, or give dp ranges and use {option('missing', 'mean')}.",
    ),
    Rule("reconstruction_error", "dp", "an exact error would reveal information about single rows"),
    Rule("monitor", "dp", _NOISED.format("counts")),
    Rule("categorical", "dp", "the names of levels are sent without noise"),
    Rule("standard_errors", "dp", _NOISED.format("sums of squares")),
    Rule("explain", "dp", "an explained share has no meaning with noise on the answers"),
    Rule("checkpoint", "dp", "a resumed run would spend more than its budget", "Start a new run with its own budget."),
    Rule("dp", "partitioned_by", "hiding one person would need noise on all scores"),
    Rule("channel", "partitioned_by", "the loadings of each party need the exact scores"),
    Rule("columns", "partitioned_by", _PARTY, "Name the columns where each party reads its table."),
    Rule("categorical", "partitioned_by", _PARTY, "Name the text columns where each party reads its table."),
    Rule("fraction", "partitioned_by", "no other party has the columns of an absent party"),
    Rule(
        "reconstruction_error",
        "partitioned_by",
        "left_out_variance_ of the result is this error",
        f"Leave {option('reconstruction_error')} out, and read left_out_variance_.",
    ),
    Rule("monitor", "partitioned_by", "T2 and SPE of a person need the columns of all parties"),
    Rule("standard_errors", "partitioned_by", "the loadings stay at the parties"),
    Rule("explain", "partitioned_by", _PARTY),
    Rule("wire", "partitioned_by", "the loadings are computed from the scores in the messages"),
    Rule("init", "partitioned_by", "a run over columns starts from scores of people"),
    Rule("variants", "dp", _NOISED.format("counts of alleles"), _LIST),
    Rule("variants", "channel", _CHANNEL.format("counts of alleles must be exact"), _LIST),
    Rule("variants", "partitioned_by", "each party has different variants"),
    Rule("variants", "explain", _EVERY.format("explain"), _LIST),
    Rule("variants", "adjust", _EVERY.format("adjust"), _LIST),
    Rule("variants", "harmonize", _EVERY.format("harmonize"), _LIST),
    Rule("variants", "init", _START),
    Rule("categorical", "variants", "text columns have no counts of alleles"),
    Rule("highly_variable", "dp", _NOISED.format("sums of genes"), _CELLS),
    Rule("highly_variable", "channel", _CHANNEL.format("sums of genes must be exact"), _CELLS),
    Rule("highly_variable", "partitioned_by", "each party has different genes"),
    Rule("highly_variable", "explain", _EVERY.format("explain"), _CELLS),
    Rule("highly_variable", "adjust", _EVERY.format("adjust"), _CELLS),
    Rule("highly_variable", "harmonize", _EVERY.format("harmonize"), _CELLS),
    Rule("highly_variable", "init", _START),
    Rule("categorical", "highly_variable", "text columns have no counts"),
    Rule("missing", "highly_variable", "counts have no missing values"),
    Rule("highly_variable", "variants", "genes and variants are different kinds of columns"),
    Rule("max_share", "mask", _SINGLE),
    Rule("max_share", "dp", "the noise on the answers would be scaled as well"),
    Rule("max_share", "channel", _SINGLE),
    Rule("max_share", "partitioned_by", _PARTY),
    _scale_rule("max_share", "the influence of a client on other scales cannot be limited", "std"),
    Rule("monitor", "max_share", _WHOLE),
    Rule("standard_errors", "max_share", _WHOLE),
    Rule("explain", "max_share", _WHOLE),
)


def check_combination(stage: Stage[Any], options_on: On, recommended: Listed) -> None:
    """Raise ConfigError if options do not work together, or with the algorithm.

    Parameters
    ----------
    stage : Stage
        The algorithm or the tracker.
    options_on : On
        The options with their values.
    recommended : Listed
        All algorithms, so that an error can name algorithms that support the options.
    """
    for options, wanted in NEEDS:
        if set(options) <= options_on.keys() and not wanted.holds(stage):
            raise unsupported_error(stage, wanted, options, options_on, recommended)
    check_options(options_on)
    _check_numbers(stage, options_on)


def unsupported_error(
    stage: Stage[Any], wanted: Property, options: tuple[str, ...], options_on: On, recommended: Listed
) -> ConfigError:
    """Return the error about options that an algorithm does not support. The error names algorithms that do."""
    what = " together with ".join(option_in_message(option, options_on.get(option)) for option in options)
    why = "" if wanted is RICH else f", because {wanted.brief}"
    given = _spec_with_property(type(stage), wanted)  # the same algorithm with other parameters
    known = {_spec_with_property(kind, wanted): kind() for kind in recommended.values()}
    fit = [name for name, made in known.items() if name and set(missing_properties(made, *options_on)) <= {wanted}]
    if given in fit:
        fit = [given]
    if fit:
        remedy = f"Use {join_with_or(fit[:_MOST])}."
    else:
        needing = {option for needed, _ in NEEDS for option in needed if option in options_on}
        every = [option_in_message(option, value) for option, value in options_on.items() if option in needing]
        remedy = f"No algorithm supports {join_with_and(every)} together. Leave one of them out."
    return ConfigError(f"{stage.spec} does not support {what}{why}. {remedy}", setting="algorithm")


def missing_properties(stage: Stage[Any], *options: str) -> list[Property]:
    """Return the properties that these options need and the algorithm lacks. If RICH is missing, return only RICH."""
    names = set(options)
    lacks = [wanted for named, wanted in NEEDS if set(named) <= names and not wanted.holds(stage)]
    return [RICH] if RICH in lacks else lacks


def check_options(options: On) -> None:
    """Raise ConfigError if options do not work together, whatever the algorithm is."""
    for rule in RULES:
        if not (rule.option in options and rule.beside in options) or rule.fits(options[rule.option]):
            continue
        # In a run over columns, each party scales its own columns without sums, so every scale is possible.
        apart = rule.option == "scale" and "partitioned_by" in options
        # With public ranges, missing values are replaced by a constant, so missing="mean" is possible.
        constant = (
            rule.option == "missing"
            and rule.beside == "dp"
            and options["missing"] == "mean"
            and options["dp"].public_ranges
        )
        if not (apart or constant):
            value = options[rule.option]
            raise ConfigError(
                f"{option_in_message(rule.option, value)} cannot be combined with "
                f"{option_in_message(rule.beside, options[rule.beside])}: "
                f"{rule.because}. {rule.then or f'Leave {option(rule.option)} out.'}",
                setting=rule.option,
                value=value,
            )
    if "dp" in options:
        _check_budget(options)


def option_in_message(name: str, value: Any = None) -> str:
    """Return an option as messages show it: its name, and its value if the name alone is not clear enough."""
    if name in ("signal", "shared"):
        return option("n_components", name)
    if name in _SHOWN_WITH_VALUE:
        return option(name, value)
    return option(name)


def _check_budget(options: On) -> None:
    dp, mask = options["dp"], options.get("mask")
    if dp.public_ranges and "scale" in options:
        raise ConfigError(
            f"{option('scale')} ({shown(options['scale'])}) cannot be combined with ranges of dp, because the ranges "
            "already scale the columns. Leave scale out.",
            setting="scale",
        )
    if "scale" in options and dp.reach is None:
        raise ConfigError(f"With a scale, dp needs reach, a bound on the raw rows. {_REACH}")
    if mask is not None and mask.bound is not None:
        raise ConfigError(f"With dp, the noise sets the bound of the masks. Leave bound={mask.bound} out.")
    if mask is not None and not mask.self_masks:
        raise ConfigError(
            "With dp, self_masks cannot be False, because the server could unmask a late upload, which contains only "
            "one client's share of the noise. Leave self_masks out."
        )


def _check_numbers(stage: Stage[Any], options: On) -> None:
    """Raise ConfigError if max_rounds is too large for a privacy budget, or tol is too small for the number format."""
    if not isinstance(stage, Iterative):
        return
    if "dp" in options and stage.max_rounds > _NOISY_ROUNDS:
        given = f"{stage.max_rounds}"
        if stage.max_rounds == type(stage).max_rounds:
            given = f"{given}, the default of {stage.spec.partition('(')[0]}"
        raise ConfigError(
            f"{option('max_rounds')} is at most {_NOISY_ROUNDS} with dp, because every round takes a part of the "
            f"budget, but it is {given}. Start with {option('max_rounds', 5)}.",
            setting="max_rounds",
        )
    if "wire" in options and stage.tolerance < (least := FLOORS[BITS[options["wire"]]]):
        raise ConfigError(
            f"{option('tol')} of {stage.name} is {stage.tolerance:g}, which {option('wire', options['wire'])} cannot "
            f"reach: the smallest possible tol is {least:g}. Raise tol, or use {option('wire', 'auto')}.",
            setting="tol",
        )


def _spec_with_property(kind: type[Stage[Any]], wanted: Property) -> str:
    """Return the text form of an algorithm, with parameters that give it the property, or "" if no parameters do."""
    if wanted.holds(kind()):
        return kind.name
    if wanted is ADDITIVE and kind.additive_with:
        return f"{kind.name}({kind.additive_with})"
    return ""
