"""A run of what is asked: its stages in order, the terms of a privacy budget, and masks over it.

`question` reads the short form, `run` puts a question together, `tracking` does so for a tracker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from flower_pca import registry
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.core import compatible
from flower_pca.core.algorithm import Algorithm, Noisy, Telling
from flower_pca.core.layer import Layer
from flower_pca.core.model import Model
from flower_pca.core.question import MISSING, AskedHere, Question
from flower_pca.core.roll import Roll
from flower_pca.core.run import Run
from flower_pca.core.stage import Stage
from flower_pca.dp.outlook import Outlook
from flower_pca.names import ranges
from flower_pca.names.coding import Coding
from flower_pca.names.columns import names_in
from flower_pca.results import start as starts
from flower_pca.results.projection import Scaling
from flower_pca.results.start import Start
from flower_pca.results.steps import TrackingResult
from flower_pca.rows.frame import Frame
from flower_pca.settings.bits import why_bits
from flower_pca.settings.budget import DP
from flower_pca.settings.masks import MaskedSums
from flower_pca.stages.opening import Opening, ScalingOnly
from flower_pca.stages.summed_opening import PrivateOpening, SummedOpening
from flower_pca.tracking.tracker import Tracker
from flower_pca.vertical import result as vertical

if TYPE_CHECKING:
    from flower_pca.core.drive import Around
    from flower_pca.layers.noise import Budget

AnyRun: TypeAlias = "Run | Around"


class AskedSteps(TypedDict, total=False):
    """What is asked of a tracker, beside it: see `tracking`."""

    n_components: int
    steps: int | None
    start: Start | None
    columns: Sequence[str] | str | None
    seed: int
    mask: bool | MaskedSums | str | None
    channel: Layer | str | None


class AskedScaling(TypedDict, total=False):
    """What is asked of a run of the opening alone: see `standardizing`."""

    missing: str
    columns: Sequence[str] | str | None
    mask: bool | MaskedSums | str | None


def channel_of(given: object) -> Layer | None:
    """The channel that a string such as "air(noise_std=0.1)" stands for; None for an ideal one."""
    if given is None:
        return None
    from flower_pca.layers.air import AirChannel

    return AirChannel.of(given)


# live on the algorithm
_STOPPING: Final = ("tol", "min_rounds", "max_rounds", "patience")
_STRINGS: Final[dict[str, Callable[[Any], Any]]] = {"mask": MaskedSums.of, "dp": DP.of, "channel": channel_of}


def question(algorithm: str | Algorithm[Any] | Question, **settings: Any) -> Question:
    """A question in short.

    Args:
        algorithm: A name ("krylov"), a spec string ("faps(inner_steps=5)") or an instance; or a
            Question, then alone.
        **settings: The other fields of `Question`; tol, min_rounds, max_rounds and patience are
            passed on to an algorithm that iterates.
    """
    if isinstance(algorithm, Question):
        if settings:
            raise ConfigError(
                "The settings beside a Question",
                must="left out",
                got=", ".join(settings),
                then="Use dataclasses.replace to change them in the question.",
            )
        return check(algorithm)
    checks.parameters("a question", settings, AskedHere.__annotations__)
    require_components(settings)
    made = registry.make(algorithm, **{name: settings[name] for name in _STOPPING if settings.get(name) is not None})
    for name in _STOPPING:
        settings.pop(name, None)
    for name, read in _STRINGS.items():
        if name in settings:
            settings[name] = read(settings[name])
    return check(Question(made, **settings))


def require_components(settings: Mapping[str, object]) -> None:
    """Refuse settings that do not say how many components are wanted."""
    if "n_components" not in settings:
        raise ConfigError("n_components is missing. Add it, for example n_components=2.")


def check(question: Question, **beside: Any) -> Question:
    """The question, if all that it asks for goes together; with what is asked `beside` it."""
    on = {**question.options, **beside}
    if not on:
        return question
    algorithm = question.algorithm
    if _has_ranges(question):
        # where columns are known auto takes its algorithm now: that is the one that has to suit
        algorithm, _ = _beforehand(question)
    compatible.check(algorithm, on, registry.ALGORITHMS)
    return question


def _has_ranges(question: Question) -> bool:
    """Whether the columns are known before the run, with their ranges."""
    return question.dp is not None and bool(question.dp.public_ranges)


def _beforehand(question: Question) -> tuple[Algorithm[Any], dict[str, str]]:
    """The algorithm that a run begins with, and why, if it is another than the one asked for."""
    algorithm, why = question.algorithm, ""
    private, over_air = question.dp is not None, question.channel is not None
    if (private or over_air) and isinstance(algorithm, Noisy):
        algorithm, why = algorithm.under_noise(private=private, over_air=over_air, known=_has_ranges(question))
    if why:
        return algorithm, {"algorithm": why}
    return algorithm, {}


def _public(question: Question) -> Frame:
    """What is known of the columns before the run: middles and halves of their ranges, if any.

    The middle stands for a missing value while the mean is measured, which no row moves.
    """
    if question.dp is None or not question.dp.public_ranges or question.columns is None:
        return Frame()
    middles, halves = ranges.halves(question.dp.public_ranges, question.columns)
    return Frame(middles, halves, middles if question.missing == "mean" else None)


def outlook(question: Question, *, rows: int, columns: int, clients: int) -> Outlook | None:
    """What a budget leaves to be seen of a table of this size, before any of it is spent; None without a budget."""
    if question.dp is None:
        return None
    from flower_pca.layers.noise import plan

    budget, _ = plan(question.dp, _beforehand(question)[0], PrivateOpening.name)
    if question.mask is not None:
        budget = budget.divide(question.mask.quorum(question.mask.degree(clients) + 1))
    return budget.outlook(rows=rows, columns=columns, clients=clients)


def run(question: Question, *, judged: bool = True, start: Start | None = None) -> AnyRun:
    """A run of a `checked` question: opening, algorithm, its closing stage; what follows these if it is asked for.

    Where all clients are our own, as in a simulation, answers need not be `judged` by what they say
    of their rows. With a `start`, its components are the block of the opening.
    """
    if start is not None:
        check(question, start=type(start).__name__)
    if question.levels is not None:
        if question.columns is None or not question.coding.is_known:
            return _by_agreement(question, judged=judged, start=start)
        question = replace(question, columns=question.coding.spread(question.columns))
    algorithm, choices = _beforehand(question)
    if question.split == "columns":
        return _under(question.mask, vertical.run(question, algorithm, choices))
    bits, tol = 64, None
    if algorithm.tolerant and not algorithm.basic:
        bits, tol = question.bits, question.tol
    if question.wire == "auto":
        choices |= {"wire": why_bits(bits, tol)}
    layers, budget = _layers(question, algorithm, bits), None
    if question.dp is not None:
        from flower_pca.layers.noise import plan

        budget, algorithm = plan(question.dp, algorithm, PrivateOpening.name)
        layers.append(budget)
    entry = registry.entry(type(algorithm))
    alone = partial(entry.opening, judged=judged, bits=bits)
    if question.adjust:
        opening = _adjusted_opening(question, algorithm.width(question.begins), judged=judged, bits=bits)
    else:
        opening = _opening(question, algorithm.width(question.begins), budget, alone)
    if question.max_share is not None:
        opening, capping = _cap(opening, question.max_share)
        layers += capping
    later = [registry.STAGES[name]() for name in registry.AFTER if getattr(question, name)]
    summed = question.mask is not None
    made = Run(
        (opening, *_counting(question), algorithm, entry.closing(), *later),
        model=_model(question, algorithm, choices, start),
        roll=Roll(min_clients=question.min_clients, fraction=question.fraction, seed=question.seed, summed=summed),
        result=entry.result,
        layers=layers,
        question=question.plain(),
    )
    return _under(question.mask, made)


def _by_agreement(question: Question, *, judged: bool, start: Start | None) -> AnyRun:
    """A run that begins by asking what columns are called, and goes on as one of these by name."""
    from flower_pca.stages.agreed import Agreed, Naming

    def then(columns: tuple[str, ...], found: Coding) -> AnyRun:
        return run(question.with_coding(found, columns), judged=judged, start=start)

    algorithm, choices = _beforehand(question)
    first = Run(
        (Naming(),),
        model=_model(question, algorithm, choices, None),
        roll=Roll(opens=False, min_clients=question.min_clients, seed=question.seed),
        result=Scaling,
        question=question.plain(),
    )
    return Agreed(first, coding=question.coding, columns=question.columns, then=then)


def _layers(question: Question, algorithm: Algorithm[Any], bits: int) -> list[Layer]:
    """The layers that are on, but for a budget's noise, in the order they are laid on."""
    layers: list[Layer] = []
    if question.channel is not None:
        layers.append(question.channel)
    if bits < 64:
        from flower_pca.layers.precision import Precision

        layers.append(Precision(bits))
    if isinstance(algorithm, Telling) and algorithm.by_client is not None:
        from flower_pca.layers.single import Single

        layers.append(Single())
    return layers


def _opening(question: Question, width: int, budget: Budget | None, alone: Callable[..., Opening]) -> Stage[Any]:
    """The opening that goes with noise, with masks, or with neither (single answers seen)."""
    if budget is not None:
        return PrivateOpening(width=width, clip=budget.reach, noise=budget.frame_noise)
    if question.mask is not None:
        return SummedOpening(width=width)
    return alone(width=width)


def _adjusted_opening(question: Question, width: int, *, judged: bool, bits: int) -> Stage[Any]:
    """The opening of a run that removes what covariates explain."""
    from flower_pca.stages.adjusted_opening import AdjustedOpening, AdjustedSums

    if question.mask is not None:
        return AdjustedSums(width=width)
    return AdjustedOpening(width=width, judged=judged, bits=bits)


def _cap(opening: Stage[Any], share: float) -> tuple[Stage[Any], list[Layer]]:
    """An opening in which no client counts for more than a share, and what scales later answers."""
    from flower_pca.layers.max_share import MaxShare
    from flower_pca.stages.weighing import CappedOpening, WeighingOpening

    assert isinstance(opening, Opening)
    if isinstance(opening, WeighingOpening):
        return replace(opening, share=share), []
    width, judged, bits = opening.width, opening.judged, opening.bits
    return CappedOpening(width=width, judged=judged, bits=bits, share=share), [MaxShare(share)]


def with_stage(question: Question, stage: str) -> Question:
    """The question, with a stage beside the algorithm that nodes have to name, if there is one."""
    if stage in registry.COUNTING:
        return check(replace(question, n_components=stage))
    if stage in registry.BESIDE:
        chosen: Any = True
        return check(replace(question, **{stage: chosen}))
    return question


def _counting(question: Question) -> list[Stage[Any]]:
    """What finds the number of components before the algorithm, where the question has none."""
    if isinstance(question.n_components, str):
        return [registry.COUNTING[question.n_components]()]
    return []


def _model(question: Question, algorithm: Algorithm[Any], choices: dict[str, str], start: Start | None) -> Model:
    """What is known before the first message."""
    basis, earlier = None, None
    if start is not None:
        basis = starts.block(
            start, algorithm, n_components=question.begins, seed=question.seed, wanted=question.columns
        )
        earlier = starts.earlier(start, algorithm, n_components=question.begins, wanted=question.columns)
    shared: tuple[str, ...] = ()
    if question.levels is not None:
        shared = question.coding.new_columns
    return Model(
        n_components=question.begins,
        center=question.centered,
        scale=question.scale,
        seed=question.seed,
        missing=question.missing,
        warm=start is not None,
        earlier=earlier,
        summed=question.mask is not None,
        wanted=question.columns,
        shared=shared,
        covariates=question.covariates,
        explain=question.explain,
        public=_public(question),
        basis=basis,
        choices=choices,
    )


def tracking(
    tracker: Tracker,
    *,
    n_components: int,
    seed: int = 0,
    steps: int | None = None,
    start: Start | None = None,
    columns: Sequence[str] | str | None = None,
    min_clients: int = 1,
    mask: bool | MaskedSums | str | None = None,
    channel: Layer | str | None = None,
) -> AnyRun:
    """A run of steps: a tracker alone, without an opening, since nothing is centred.

    Args:
        tracker: The stage.
        n_components: Columns of the basis.
        seed: Seed of everything random on the server.
        steps: Steps to take; None for as many as there is data for.
        start: A basis to start from, as rows; or a result.
        columns: Names of the columns to use, in the order of the result: see `Question`.
        min_clients: Clients that must be present.
        mask: Whether sums are masked, or how.
        channel: What the sums of the replies are heard through; None for an ideal one.
    """
    checks.integer("n_components", n_components, least=1)
    checks.integer("seed", seed, most=2**62)
    checks.integer("min_clients", min_clients, least=1)
    if steps is not None:
        checks.integer("steps", steps, least=1)
    masks, air = MaskedSums.of(mask), channel_of(channel)
    on = {name: given for name, given in (("mask", masks), ("channel", air)) if given is not None}
    compatible.check(tracker, on, registry.TRACKERS)
    r, masked, names = int(n_components), masks is not None, names_in(columns)
    basis, names = (None, names) if start is None else starts.basis(start, r, names)
    model = Model(
        n_components=r, center=False, scale=None, seed=int(seed), steps=steps, summed=masked, wanted=names, basis=basis
    )
    plain: Mapping[str, Any] = {"n_components": r, "seed": int(seed), "steps": steps, "min_clients": min_clients}
    plain = {**plain, "columns": None if names is None else list(names)}
    words = {"tracker": tracker.spec, "mask": masks and repr(masks), "channel": air and repr(air)}
    roll = Roll(opens=False, min_clients=min_clients, seed=int(seed), summed=masked)
    layers = [] if air is None else [air]
    made = Run((tracker,), model=model, roll=roll, result=TrackingResult, layers=layers, question={**words, **plain})
    return _under(masks, made)


def standardizing(
    *,
    missing: str = "error",
    columns: Sequence[str] | str | None = None,
    min_clients: int = 1,
    mask: bool | MaskedSums | str | None = None,
) -> AnyRun:
    """A run of the opening alone, whose result is the `Scaling` of all rows together.

    Args:
        missing: See `Question`, as the next one.
        columns: Names of the columns to use, in the order of the result.
        min_clients: Clients that must be present.
        mask: Whether sums are masked, or how.
    """
    checks.choice("missing", missing, MISSING)
    checks.integer("min_clients", min_clients, least=1)
    masks, names = MaskedSums.of(mask), names_in(columns)
    summed = masks is not None
    opening: Stage[Any] = Opening(width=0)
    if summed:
        opening = SummedOpening(width=0)
    model = Model(n_components=1, center=True, scale="deviation", seed=0, missing=missing, summed=summed, wanted=names)
    roll = Roll(min_clients=min_clients, seed=0, summed=summed)
    settings = {"missing": missing, "min_clients": min_clients, "columns": None if names is None else list(names)}
    return _under(masks, Run((opening, ScalingOnly()), model=model, roll=roll, result=Scaling, question=settings))


def _under(masks: MaskedSums | None, made: Run) -> AnyRun:
    if masks is None:
        return made
    from flower_pca.masking.run import Masked

    return Masked(made, masks)
