"""Assemble a run from its configuration: the stages in their order, layers, a privacy budget, and masks.

`config` makes a configuration from keywords, `run` makes its run, and `tracking` makes the run of a tracker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from flower_pca import registry
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.settings import SETTINGS
from flower_pca.core import compatible
from flower_pca.core.algorithm import AdaptsToNoise, Algorithm
from flower_pca.core.config import COMPONENTS, PCAConfig, SimulationOptions
from flower_pca.core.layer import Layer
from flower_pca.core.model import Model
from flower_pca.core.roll import Roll
from flower_pca.core.run import Run
from flower_pca.core.stage import Stage
from flower_pca.dp.outlook import Outlook
from flower_pca.names import ranges
from flower_pca.names.columns import split_names
from flower_pca.names.levels import Coding
from flower_pca.results import start as starts
from flower_pca.results.projection import Scaling
from flower_pca.results.start import Start
from flower_pca.rows.frame import Frame
from flower_pca.settings.bits import ROUNDING, why_bits
from flower_pca.settings.budget import DP
from flower_pca.settings.highly_variable import HighlyVariable
from flower_pca.settings.masks import MaskedSums
from flower_pca.settings.variants import Variants
from flower_pca.stages.opening import Opening, ScalingOnly
from flower_pca.stages.private_opening import PrivateOpening
from flower_pca.stages.summed_opening import SummedOpening

if TYPE_CHECKING:
    from flower_pca.core.drive import WrappedRun
    from flower_pca.layers.noise import BudgetLayer
    from flower_pca.tracking.tracker import Tracker

AnyRun: TypeAlias = "Run | WrappedRun"


class TrackingOptions(TypedDict, total=False):
    """The keywords of the function `tracking`."""

    n_components: int
    steps: int | None
    init: Start | None
    columns: Sequence[str] | str | None
    seed: int
    mask: bool | MaskedSums | str | None
    channel: Layer | str | None


class ScalingOptions(TypedDict, total=False):
    """The keywords of the function `standardizing`."""

    missing: str
    columns: Sequence[str] | str | None
    mask: bool | MaskedSums | str | None


def channel_of(spec: object) -> Layer | None:
    """Return the channel of a spec string such as "air(noise_std=0.1)", or None for an ideal channel."""
    if spec is None:
        return None
    from flower_pca.layers.air import AirChannel

    return AirChannel.of(spec)


# The keywords of `config` that become parameters of an iterative algorithm, so their defaults depend on the algorithm
STOPPING: Final = ("tol", "min_rounds", "max_rounds", "patience")
_STRINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "mask": MaskedSums.of,
    "variants": Variants.of,
    "highly_variable": HighlyVariable.of,
    "dp": DP.of,
    "channel": channel_of,
}


def config(algorithm: str | Algorithm[Any] | PCAConfig, **settings: Any) -> PCAConfig:
    """Return a checked configuration for an algorithm and keywords.

    Parameters
    ----------
    algorithm : str, Algorithm or PCAConfig
        A name ("krylov"), a spec string ("faps(inner_steps=5)"), an instance, or a PCAConfig without other settings.
    **settings
        The other fields of `PCAConfig`. For an iterative algorithm, also tol, min_rounds, max_rounds and patience.
    """
    if isinstance(algorithm, PCAConfig):
        if settings:
            raise ConfigError(
                f"A PCAConfig already has its settings, so {', '.join(settings)} cannot be given as well. Use "
                f"dataclasses.replace(config, {next(iter(settings))}=...) instead."
            )
        return check_config(algorithm)
    checks.parameters("simulate()", settings, SimulationOptions.__annotations__)
    made = registry.make(algorithm, **{name: settings[name] for name in STOPPING if settings.get(name) is not None})
    for name in STOPPING:
        settings.pop(name, None)
    for name, read in _STRINGS.items():
        if name in settings:
            settings[name] = read(settings[name])
    return check_config(PCAConfig(made, **settings))


def check_config(config: PCAConfig, **more: Any) -> PCAConfig:
    """Return the configuration after checking that its settings, and the settings in `more`, work together."""
    on = {**config.options, **more}
    if not on:
        return config
    algorithm = config.algorithm
    if _has_ranges(config):
        # If the columns are known, `auto` chooses its algorithm now, and the check applies to that algorithm.
        algorithm, _ = _first_algorithm(config)
    compatible.check_combination(algorithm, on, registry.ALGORITHMS)
    return config


def _has_ranges(config: PCAConfig) -> bool:
    """Return whether a privacy budget comes with public ranges, so that the columns are known before the run."""
    return config.dp is not None and bool(config.dp.public_ranges)


def _first_algorithm(config: PCAConfig) -> tuple[Algorithm[Any], dict[str, str]]:
    """Return the algorithm with which the run begins, and the decisions about it, which may be empty.

    The decisions give the reason if the run begins with another algorithm or other parameters than requested.
    """
    algorithm, why = config.algorithm, ""
    private, over_air = config.dp is not None, config.channel is not None
    if (private or over_air) and isinstance(algorithm, AdaptsToNoise):
        algorithm, why = algorithm.under_noise(private=private, over_air=over_air, columns_known=_has_ranges(config))
    if why:
        return algorithm, {"algorithm": why}
    return algorithm, {}


def _public_frame(config: PCAConfig) -> Frame:
    """Return the frame that is known before the run: midpoints and half widths of the public ranges, if there are any.

    While the mean is measured, the midpoint replaces missing values, because no row influences the midpoint.
    """
    if config.dp is None or not config.dp.public_ranges or config.columns is None:
        return Frame()
    middles, halves = ranges.middles_and_half_lengths(config.dp.public_ranges, config.columns)
    return Frame(middles, halves, middles if config.missing == "mean" else None)


def noise_forecast(config: PCAConfig, *, rows: int, columns: int, clients: int) -> Outlook | None:
    """Return the noise that a privacy budget causes for a table of this size, or None without a budget.

    This spends none of the budget.
    """
    if config.dp is None:
        return None
    from flower_pca.layers.noise import plan_budget

    budget, _ = plan_budget(config.dp, _first_algorithm(config)[0], PrivateOpening.name)
    if config.mask is not None:
        budget = budget.divide_noise(config.mask.quorum(config.mask.neighbor_count(clients) + 1))
    return budget.noise_forecast(rows=rows, columns=columns, clients=clients)


def run(config: PCAConfig, *, judged: bool = True, init: Start | None = None) -> AnyRun:
    """Return the run of a checked configuration: opening, algorithm, closing stage, and further requested stages.

    If all clients are trusted, as in a simulation, set `judged` to False to skip the checks of the clients' reports
    about their own rows. With `init`, the opening uses the components of this start as its block.
    """
    if init is not None:
        starts.refuse_setting(config.algorithm, init)
        check_config(config, init=type(init).__name__)
    if config.variants is not None or config.highly_variable is not None:
        return _run_on_chosen_columns(config, judged=judged)
    if config.categorical is not None:
        if config.columns is None or not config.coding.is_known:
            return _run_on_agreed_columns(config, judged=judged, init=init)
        config = replace(config, columns=config.coding.with_indicators(config.columns))
    algorithm, decisions = _first_algorithm(config)
    if config.partitioned_by == "columns":
        from flower_pca.vertical import result as vertical

        return _with_masks(config.mask, vertical.run_over_columns(config, algorithm, decisions))
    bits, tol = 64, None
    if algorithm.tolerant and not algorithm.basic:
        bits, tol = config.bits, config.tol
    if config.wire == "auto":
        decisions |= {"wire": why_bits(bits, tol)}
    layers, budget = _layers_of_run(config, algorithm, bits, tol), None
    if config.dp is not None:
        from flower_pca.layers.noise import plan_budget

        budget, algorithm = plan_budget(config.dp, algorithm, PrivateOpening.name)
        layers.append(budget)
    entry = registry.entry_of(type(algorithm))
    plain = partial(entry.opening, judged=judged, bits=bits)
    opening = _opening_of_run(config, algorithm.width(config.first_n_components), budget, plain)
    if config.harmonize is not None or config.adjust:
        opening = _with_covariates(config, opening)
    if config.max_share is not None:
        opening, capping = _with_capped_shares(opening, config.max_share)
        layers += capping
    later = [registry.STAGES[stage]() for name, stage in registry.AFTER.items() if getattr(config, name)]
    summed = config.mask is not None
    made = Run(
        (opening, *_component_counters(config), algorithm, entry.closing(), *later),
        model=_initial_model(config, algorithm, decisions, init),
        roll=Roll(min_nodes=config.min_nodes, fraction=config.fraction, seed=config.seed, summed=summed),
        result=entry.result,
        layers=layers,
        config=config.plain_settings(),
    )
    return _with_masks(config.mask, made)


def _run_on_agreed_columns(config: PCAConfig, *, judged: bool, init: Start | None) -> AnyRun:
    """Return a run that first asks all nodes for the names of their columns, and then requests columns by name."""
    from flower_pca.stages.agreed import Naming, RunOnAgreedColumns

    def pca_of_columns(columns: tuple[str, ...], found: Coding) -> AnyRun:
        return run(config.with_coding(found, columns), judged=judged, init=init)

    algorithm, decisions = _first_algorithm(config)
    first = Run(
        (Naming(),),
        model=_initial_model(config, algorithm, decisions, None),
        roll=Roll(opens=False, min_nodes=config.min_nodes, seed=config.seed),
        result=Scaling,
        config=config.plain_settings(),
    )
    return RunOnAgreedColumns(first, coding=config.coding, columns=config.columns, make_run=pca_of_columns)


def _run_on_chosen_columns(config: PCAConfig, *, judged: bool) -> AnyRun:
    """Return a run that first computes sums of all columns, and then a PCA of the columns that it chooses by them.

    The chosen columns are variants that pass the filters, or highly variable genes.
    """
    from flower_pca.stages.chosen import Columns, CountsAndMeans, RunOnChosenColumns, SummedCountsAndMeans
    from flower_pca.stages.gene_sums import GeneSums
    from flower_pca.stages.hardy_weinberg import HardyWeinberg

    variants, genes = config.variants, config.highly_variable

    def pca_of_columns(columns: tuple[str, ...]) -> AnyRun:
        return run(replace(config, columns=columns, variants=None, highly_variable=None), judged=judged)

    def choose(model: Model, names: Columns) -> tuple[Columns, str]:
        if genes is not None:
            return genes.select_genes(model.n, model.left["mean"], model.left["variance"], names)
        assert variants is not None
        return variants.select_variants(
            model.n, model.left["mean"], model.left["seen"], names, model.left.get("failed")
        )

    summed = config.mask is not None
    first_stage: Stage[Any] = CountsAndMeans(width=0, judged=judged) if not summed else SummedCountsAndMeans(width=0)
    if genes is not None:
        first_stage = GeneSums(of_counts=genes.of_counts)
    tests = () if variants is None or variants.hwe is None else (HardyWeinberg(least=variants.hwe),)
    algorithm, decisions = _first_algorithm(config)
    first = Run(
        (first_stage, *tests, ScalingOnly()),
        model=_initial_model(config, algorithm, decisions, None),
        roll=Roll(min_nodes=config.min_nodes, seed=config.seed, summed=summed),
        result=Scaling,
        config=config.plain_settings(),
    )
    what = "variants" if genes is None else "highly_variable"
    return RunOnChosenColumns(_with_masks(config.mask, first), what=what, choose=choose, make_run=pca_of_columns)


def _layers_of_run(config: PCAConfig, algorithm: Algorithm[Any], bits: int, tol: float | None) -> list[Layer]:
    """Return the layers of the run in the order in which they apply, without the noise of a budget."""
    layers: list[Layer] = []
    if config.channel is not None:
        layers.append(config.channel)
    fitting = tol if config.wire == "auto" else None
    if bits < 64 or fitting:
        from flower_pca.layers.precision import Precision

        layers.append(Precision(bits, fitting))
    if algorithm.numbers_by_client is not None:
        from flower_pca.layers.single import NumberTables

        layers.append(NumberTables())
    return layers


def _opening_of_run(
    config: PCAConfig, width: int, budget: BudgetLayer | None, plain: Callable[..., Opening]
) -> Stage[Any]:
    """Return the opening for a run with noise, the opening for a run with masks, or `plain` for all other runs."""
    if budget is not None:
        return PrivateOpening(width=width, clip=budget.raw_row_norm, noise=budget.frame_noise)
    if config.mask is not None:
        return SummedOpening(width=width)
    return plain(width=width)


def _with_covariates(config: PCAConfig, inner: Stage[Any]) -> Stage[Any]:
    """Return an opening that extends `inner` to harmonize sites, or else to remove the effect of covariates."""
    assert isinstance(inner, Opening | SummedOpening)
    if config.harmonize is not None:
        from flower_pca.stages.harmonized_opening import HarmonizedOpening, HarmonizedSummedOpening

        return HarmonizedOpening(inner=inner) if isinstance(inner, Opening) else HarmonizedSummedOpening(inner=inner)
    from flower_pca.stages.adjusted_opening import AdjustedOpening, AdjustedSums

    return AdjustedOpening(inner=inner) if isinstance(inner, Opening) else AdjustedSums(inner=inner)


def _with_capped_shares(opening: Stage[Any], share: float) -> tuple[Stage[Any], list[Layer]]:
    """Return an opening that caps the weight of each client at this share, and the layers that scale later answers."""
    from flower_pca.layers.max_share import MaxShare
    from flower_pca.stages.weighing import CappedOpening, WeightedOpening

    assert isinstance(opening, Opening)
    if isinstance(opening, WeightedOpening):
        return replace(opening, share=share), []
    width, judged, bits = opening.width, opening.judged, opening.bits
    return CappedOpening(width=width, judged=judged, bits=bits, share=share), [MaxShare(share)]


def _component_counters(config: PCAConfig) -> list[Stage[Any]]:
    """Return a list with the stage that finds the number of components, or an empty list if the number is given."""
    if isinstance(config.n_components, str):
        return [registry.COUNTING[config.n_components]()]
    return []


def _initial_model(
    config: PCAConfig, algorithm: Algorithm[Any], decisions: dict[str, str], init: Start | None
) -> Model:
    """Return the model with which a run starts, before its first message."""
    basis, earlier = None, None
    if init is not None:
        basis = starts.start_block(
            init, algorithm, n_components=config.first_n_components, seed=config.seed, wanted=config.columns
        )
        earlier = starts.earlier_run(
            init,
            algorithm,
            n_components=config.first_n_components,
            wanted=config.columns,
            rounding=ROUNDING[config.bits],
        )
    shared: tuple[str, ...] = ()
    if config.categorical is not None:
        shared = config.coding.new_columns
    return Model(
        n_components=config.first_n_components,
        center=config.centered,
        scale=config.scale,
        seed=config.seed,
        missing=config.missing,
        warm=init is not None,
        earlier=earlier,
        summed=config.mask is not None,
        wanted=config.columns,
        shared=shared,
        covariates=config.covariates,
        explain=config.explain,
        public=_public_frame(config),
        basis=basis,
        bits_by_tolerance=config.bits if config.wire == "auto" and config.tol else 0,
        decisions=decisions,
    )


def tracking(
    tracker: Tracker,
    *,
    n_components: int = COMPONENTS,
    seed: int = 0,
    steps: int | None = None,
    init: Start | None = None,
    columns: Sequence[str] | str | None = None,
    min_nodes: int = 1,
    mask: bool | MaskedSums | str | None = None,
    channel: Layer | str | None = None,
) -> AnyRun:
    """Return the run of a tracker. It has no opening, because a tracker does not center the rows.

    Parameters
    ----------
    tracker : Tracker
        The tracker.
    n_components : int, default=2
        The number of components.
    seed : int, default=0
        The seed of everything random on the server.
    steps : int or None, default=None
        The number of steps, or None to continue until no client has more rows.
    init : PCAResult, path or array-like, or None, default=None
        An earlier result to start from, or the rows of a basis.
    columns : sequence of str, str or None, default=None
        The names of the columns to use, in the order of the result: see `PCAConfig`.
    min_nodes : int, default=1
        The minimum number of clients.
    mask : bool, MaskedSums, str or None, default=None
        Whether sums are masked, or the settings of the masks.
    channel : Layer, str or None, default=None
        The channel over which answers are summed, or None for an ideal channel.
    """
    from flower_pca.results.steps import TrackingResult

    checks.integer("n_components", n_components, least=1)
    checks.integer("seed", seed, most=2**62)
    checks.integer("min_nodes", min_nodes, least=1)
    if steps is not None:
        checks.integer("steps", steps, least=1)
        steps = int(steps)
    masks, air = MaskedSums.of(mask), channel_of(channel)
    on = {name: given for name, given in (("mask", masks), ("channel", air)) if given is not None}
    compatible.check_combination(tracker, on, registry.TRACKERS)
    r, masked, names = int(n_components), masks is not None, split_names(columns)
    basis, names = (None, names) if init is None else starts.start_basis(init, r, names)
    model = Model(
        n_components=r, center=False, scale=None, seed=int(seed), steps=steps, summed=masked, wanted=names, basis=basis
    )
    plain: Mapping[str, Any] = {"n_components": r, "seed": int(seed), "steps": steps, "min_nodes": int(min_nodes)}
    plain = {**plain, "columns": None if names is None else list(names)}
    words = {"tracker": tracker.spec, "mask": masks and repr(masks), "channel": air and repr(air)}
    roll = Roll(opens=False, min_nodes=min_nodes, seed=int(seed), summed=masked)
    layers = [] if air is None else [air]
    made = Run((tracker,), model=model, roll=roll, result=TrackingResult, layers=layers, config={**words, **plain})
    return _with_masks(masks, made)


def standardizing(
    *,
    missing: str = "error",
    columns: Sequence[str] | str | None = None,
    min_nodes: int = 1,
    mask: bool | MaskedSums | str | None = None,
) -> AnyRun:
    """Return a run that consists only of the opening. Its result is the `Scaling` of the rows of all clients.

    Parameters
    ----------
    missing : {"error", "local_mean", "mean"}, default="error"
        What to do with missing values: see `PCAConfig`.
    columns : sequence of str, str or None, default=None
        The names of the columns to use, in the order of the result.
    min_nodes : int, default=1
        The minimum number of clients.
    mask : bool, MaskedSums, str or None, default=None
        Whether sums are masked, or the settings of the masks.
    """
    checks.choice("missing", missing, SETTINGS["missing"].choices)
    checks.integer("min_nodes", min_nodes, least=1)
    masks, names = MaskedSums.of(mask), split_names(columns)
    summed = masks is not None
    opening: Stage[Any] = Opening(width=0)
    if summed:
        opening = SummedOpening(width=0)
    model = Model(n_components=1, center=True, scale="deviation", seed=0, missing=missing, summed=summed, wanted=names)
    roll = Roll(min_nodes=min_nodes, seed=0, summed=summed)
    settings = {"missing": missing, "min_nodes": min_nodes, "columns": None if names is None else list(names)}
    return _with_masks(masks, Run((opening, ScalingOnly()), model=model, roll=roll, result=Scaling, config=settings))


def _with_masks(masks: MaskedSums | None, run: Run) -> AnyRun:
    if masks is None:
        return run
    from flower_pca.masking.run import MaskedRun

    return MaskedRun(run, masks)
