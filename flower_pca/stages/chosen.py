"""Runs that first choose their columns from the sums of an opening, and then continue with these columns.

The first message is an opening that asks for no product. The answers give the number of rows, and the mean
and the number of values of each column over all sites together. Under masks, the server sees only sums over
sites.

| message | what it asks for                       | what follows                                                |
| ------- | -------------------------------------- | ----------------------------------------------------------- |
| first   | count, sums and squares of each column | a run of the same configuration with the chosen columns     |
| later   | the messages of that run               | its result, with the first message in the history           |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np

from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.core.drive import ContinuedRun, Driven
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays
from flower_pca.stages.opening import Opening, OpeningState
from flower_pca.stages.summed_opening import SummedOpening, SummedState

Columns: TypeAlias = tuple[str, ...]
# A function that takes the model after the first message and the names of all columns. It returns the chosen
# columns and a sentence about the columns left out.
Choose: TypeAlias = Callable[[Model, Columns], tuple[Columns, str]]
Then: TypeAlias = Callable[[Columns], Driven]  # a function that creates the run with these columns


@dataclass(frozen=True, kw_only=True)
class CountsAndMeans(Opening):
    """An opening that only counts rows and values and computes means.

    Cost: a client needs one pass over the rows, and sends two or three columns of d floats.
    """

    def finish(self, state: OpeningState, model: Model) -> Model:
        assert state.total is not None
        return _with_totals(model, state.total)


@dataclass(frozen=True, kw_only=True)
class SummedCountsAndMeans(SummedOpening):
    """An opening from sums that only counts rows and values and computes means.

    It ends after the first message of `SummedOpening`.

    Cost: a client needs one pass over the rows, and sends two or three columns of d floats.
    """

    def server(self, state: SummedState, total: Arrays, answered: frozenset[int]) -> SummedState:
        first = super().server(state, total, answered)
        assert first.reference is not None
        found = {"n": np.array(first.n), "mean": first.reference}
        if state.gaps:
            found["count"] = np.rint(total["count"])
        return replace(first, total=found)

    def finish(self, state: SummedState, model: Model) -> Model:
        assert state.total is not None
        return _with_totals(model, state.total)


def _with_totals(model: Model, total: Arrays) -> Model:
    n, mean = int(total["n"]), total["mean"]
    seen = np.broadcast_to(np.asarray(total.get("count", n), dtype=np.float64), mean.shape)
    return replace(model, n=n, d=len(mean), left={**model.left, "mean": mean, "seen": seen})


@final
class RunOnChosenColumns(ContinuedRun):
    """A run whose first message determines its columns. A driver can treat it like any other run.

    Parameters
    ----------
    first : Driven
        The run of the first message.
    what : str
        The option that requests the choice. Error messages name it.
    choose : Choose
        A function that chooses the columns.
    make_run : Then
        A function that creates the run with these columns.
    """

    def __init__(self, first: Driven, *, what: str, choose: Choose, make_run: Then) -> None:
        super().__init__(first)
        self._what, self._choose, self._then = what, choose, make_run
        self._said = ""

    def result(self) -> Any:
        """Return the result of the finished run, with all messages and a sentence about the columns left out."""
        found: Any = super().result()
        return replace(found, decisions=(*found.decisions, self._said)) if self._said else found

    def checkpoint(self, *, steps: bool = True) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return the header and arrays from which a new run with the same arguments can continue."""
        header, arrays = super().checkpoint(steps=steps)
        return {**header, "said": self._said}, arrays

    def restore(self, header: Mapping[str, Any], arrays: dict[str, Array]) -> None:
        """Continue from a `checkpoint`, with the columns that had been chosen by then."""
        run = self._then(tuple(header["config"]["columns"])) if header["settled"] else None
        self._restore(run, header, arrays)
        self._said = str(header["said"])

    def _second_run(self) -> Driven:
        """Return the run with the chosen columns, and create it if the first message has just been answered."""
        if self._run is None:
            model = self._first.position.model
            names = model.feature_names
            if names is None:
                raise ConfigError(
                    f"{self._what} selects columns by name, but the sites send no names to the server. Read them from "
                    f"files that name their columns, set share_names at the nodes, or leave {self._what} out.",
                    setting=self._what,
                )
            columns, self._said = self._choose(model, tuple(names))
            self._run = self._then(columns)
        return self._run
