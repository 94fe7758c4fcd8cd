"""What a checkpoint of a run holds, and whether it is one that the run can go on from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from flower_pca.base import archive
from flower_pca.base.errors import ConfigError
from flower_pca.base.files import Recorder
from flower_pca.base.history import History
from flower_pca.base.linalg import Array
from flower_pca.core.layer import Layer
from flower_pca.core.model import Model
from flower_pca.core.roll import Roll
from flower_pca.core.standing import Role, Standing

NEWEST: Final = 1000  # messages that a run without an end keeps
_MESSAGES: Final = 64  # of them in a checkpoint, which is written with every message
LAYOUT: Final = 10  # grows with every change of what is kept
# of a standing
_PLACE: Final = {"index": int, "halfway": bool, "last": bool, "disturbed": bool}
_IDENTITY: Final = ("n_components", "center", "scale", "missing", "seed")


def identity(standing: Standing, model: Model, roll: Roll, layers: Iterable[Layer]) -> dict[str, Any]:
    """What a checkpoint and the run that goes on from it have in common; `model` is that before the first message."""
    stages: list[Any] = list(standing.stages)
    if standing.chooser is not None:
        stages[standing.place] = standing.chooser
    return {
        "stages": [stage.spec for stage in stages],
        "fraction": roll.fraction,
        "layers": [layer.mark for layer in layers if layer.mark],
        "masked": roll.summed,
        **{name: getattr(model, name) for name in _IDENTITY},
        "wanted": None if model.wanted is None else list(model.wanted),
    }


def so_far(standing: Standing) -> Model | None:
    """What a run of steps has found by now; None before its first step is over, and of a run without steps."""
    state = standing.state
    if standing.is_finished or not isinstance(state, Recorder) or not state.record:
        return None
    return replace(standing.model_now(whole=True), left=state.figures())


def pack(
    run: Mapping[str, Any], asked: Mapping[str, Any], standing: Standing, roll: Roll, history: History, *, steps: bool
) -> tuple[dict[str, Any], dict[str, Array]]:
    """All that changes in a run: a JSON header, and arrays. `run` is its identity, `asked` the question.

    Without `steps`, those of a tracker are left to a `Trail`.
    """
    arrays: dict[str, Array] = {}
    if steps and isinstance(standing.state, Recorder) and standing.state.record:
        arrays["steps"] = standing.state.lines(len(standing.state.record))
    values = {"layout": LAYOUT, "run": run, "asked": asked, "roll": roll.to_json(), "history": in_brief(history)}
    return {**values, **_pack_standing(standing, arrays)}, arrays


def unpack(
    header: Mapping[str, Any],
    arrays: dict[str, Array],
    *,
    run: Mapping[str, Any],
    standing: Standing,
    roll: Roll,
    limit: int | None,
) -> tuple[Standing, Roll, History]:
    """What `packed` has put into header and arrays, for a run with this identity, standing and roll."""
    if header.get("layout") != LAYOUT:
        remedy = "Delete it, and start the run again."
        raise ConfigError("The checkpoint", must="one of this version", got="one of an earlier one", then=remedy)
    if header["run"] != run:
        got = "one of " + ", ".join(f"{name}={v!r}" for name, v in header["run"].items() if run.get(name) != v)
        remedy = "Repeat that run's arguments, or choose another checkpoint."
        raise ConfigError("The checkpoint", must="one of this very run", got=got, then=remedy)
    there = _unpack_standing(standing, header, arrays)
    history = replace(History.from_json(header["history"]), limit=limit)
    if isinstance(there.state, Recorder):
        state, steps = there.state.until(standing.model.steps), arrays.get("steps")
        if steps is not None:
            state = state.recall(steps)
        there = replace(there, state=state, model=replace(there.model, steps=standing.model.steps))
    return there, roll.restore(header["roll"]), history


def in_brief(history: History) -> list[dict[str, Any]]:
    """The rounds as plain dictionaries; of a run without an end the newest, and what the others came to."""
    return (history if history.limit is None else history.newest(_MESSAGES)).to_json()


def _pack_standing(standing: Standing, arrays: dict[str, Array]) -> dict[str, Any]:
    """Where a run stands, as plain values; arrays go into `arrays`."""
    plain = {name: getattr(standing, name) for name in _PLACE}
    model = archive.pack(standing.model, arrays, "model")
    return {**plain, "model": model, "state": archive.pack(standing.state, arrays, "state")}


def _unpack_standing(standing: Standing, kept: Mapping[str, Any], arrays: dict[str, Array]) -> Standing:
    """Where a run of the same stages stood that `_packed` has kept; what it had chosen follows from what it knew."""
    there = replace(standing, **{name: archive.unpack(kind, kept[name], {}) for name, kind in _PLACE.items()})
    if not 0 <= there.index <= len(there.stages):
        raise ValueError("a stage that is none of the run's")
    model = archive.unpack(Model, kept["model"], arrays)
    if not isinstance(model.n_components, int | float):
        raise ValueError("no number of components")
    there = replace(there, model=model)
    if there.role > Role.BEFORE:
        there = there.settle()
    stage = there.stages[min(there.index, len(there.stages) - 1)]
    return replace(there, state=archive.unpack(stage.State, kept["state"], arrays))
