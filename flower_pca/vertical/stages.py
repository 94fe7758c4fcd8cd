"""The first and the last stage of a run in which parties hold different columns of the same people.

In such a run, the data of a client are `PartyColumns`: the client's columns are the rows, and the n people
are the features. In `ColumnsOpening`, each party sends the sum of squares of its columns. Then an
algorithm finds the leading eigenvectors U of XX' = sum X_p X_p', where X_p is the table of party p, and
Rayleigh-Ritz orders them. In `LoadingsStage`, every party computes its loadings.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import OTHER_CLIENT, OTHER_SERVER, DataError, ProtocolError
from flower_pca.base.history import Status
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BLOCK, COUNT, ROWS, VALUES, ArrayRule, Kind, Part
from flower_pca.core.model import Claim, Model
from flower_pca.core.stage import MOST_ROWS, Arrays, Merge, Stage, add_answer, stack_answer, status_when
from flower_pca.rows.frame import Frame
from flower_pca.stages.opening import after_opening, block_or_drawn, lowest_precision, precision_flags
from flower_pca.vertical.rows import PartyColumns


@dataclass(frozen=True)
class ColumnsState:
    """The state of the server in `ColumnsOpening`.

    Attributes
    ----------
    seed : int
        The seed of the run.
    width : int
        The number of columns of the first block.
    summed : bool
        Whether the server sees only sums of answers.
    block : ndarray or None
        The first block, or None if it is still to be drawn.
    total : dict or None
        The sums of the answers, or None before the answers.
    said : dict
        The sum of squares that each party has sent. It is empty if the server sees only sums.
    """

    seed: int
    width: int
    summed: bool
    block: Array | None = None
    total: dict[str, Array] | None = None
    said: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ColumnsOpening(Stage[ColumnsState]):
    """Open a run: every party sends the sum of squares of its centered and scaled columns, once.

    The answer reveals neither the number of columns nor anything about an individual person. The number of
    people and the digest of their ids are sent together with the answer, and the server compares them, like
    column names in other runs. Under masks, the server sees only sums.

    Cost: 2 n d_p flops on a party. Each party sends four numbers.
    """

    name: ClassVar[str] = "columns_opening"

    width: int

    def start(self, model: Model) -> ColumnsState:
        return ColumnsState(model.seed, self.width, model.summed, model.basis)

    def broadcast(self, state: ColumnsState) -> Arrays:
        return {}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"n": ROWS, "single": COUNT, "rows": COUNT, "squares": Part(kind=Kind.SQUARES)}

    @staticmethod
    def client(arrays: Arrays, data: PartyColumns, memory: Arrays) -> tuple[Arrays, Arrays]:
        squares = data.squared_error(np.zeros((data.d, 1)))
        return {"n": np.array(data.n), **precision_flags(data), "squares": np.array(squares)}, {}

    def bounds(self, state: ColumnsState, model: Model) -> Mapping[str, Array | float]:
        return {"n": MOST_ROWS, "single": 1.0, "rows": 1.0, "squares": 0.0}

    def inspect(self, state: ColumnsState, reply: Arrays) -> None:
        if float(reply["squares"]) < 0.0:
            raise ProtocolError(f"An answer has a negative sum of squares. {OTHER_CLIENT}")

    def merging(self, state: ColumnsState) -> Merge:
        if state.summed:
            return add_answer
        return stack_answer

    def server(self, state: ColumnsState, total: Any, answered: frozenset[int]) -> ColumnsState:
        if state.summed:
            return replace(state, total=total)
        sums = functools.reduce(lambda sums, client: add_answer(sums, client, total[client]), total, None)
        said = {client: float(up["squares"]) for client, up in total.items()}
        return replace(state, total=sums, said=said)

    def status(self, state: ColumnsState) -> Status | None:
        return status_when(state.total is not None)

    def finish(self, state: ColumnsState, model: Model) -> Model:
        assert state.total is not None
        assert model.heading is not None
        total, people = state.total, model.heading.count
        checks.components_available(model.n_components, people, people)
        trace = float(total["squares"])
        if not trace > 0.0:
            raise DataError(
                "All rows of the joined table are equal, so there are no components. Check the columns of each party."
            )
        block = block_or_drawn(state.block, people, state.width, state.seed)
        return after_opening(
            model,
            frame=Frame(),
            claims={client: Claim(1, squares) for client, squares in state.said.items()},
            answers="rows" if total["rows"] > 0 else "fixed",
            n=people,
            d=people,
            clients=round(float(total["n"])),
            sizes=None,
            eps=lowest_precision(total),
            trace=trace,
            basis=linalg.orth(block),
            product=None,
        )


@dataclass(frozen=True)
class LoadingsState:
    """The state of the server: the wanted eigenvectors of XX', their eigenvalues, and whether parties have answered."""

    U: Array
    values: Array
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadingsStage(Stage[LoadingsState]):
    """Send U and the eigenvalues theta to every party, which computes its loadings V_p = X_p' U / sqrt(theta).

    V_p contains the party's rows of V in the decomposition X = U S V' of the pooled table. The party keeps V_p,
    and sends only a confirmation. The message reveals the scores U S to all parties.

    Cost: 2 n d_p k flops on a party. The server sends k columns of n floats.
    """

    name: ClassVar[str] = "loadings"
    asks: ClassVar[Mapping[str, ArrayRule]] = {"U": BLOCK, "values": VALUES}
    fixed_set: ClassVar[bool] = True

    def start(self, model: Model) -> LoadingsState:
        assert model.values is not None
        U = np.ascontiguousarray(linalg.fix_signs(model.columns[:, : model.k]))
        return LoadingsState(U, model.values[: model.k])

    def broadcast(self, state: LoadingsState) -> Arrays:
        return {"U": state.U, "values": state.values}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        return {"n": ROWS}

    @staticmethod
    def client(arrays: Arrays, data: PartyColumns, memory: Arrays) -> tuple[Arrays, Arrays]:
        U, values = arrays["U"], arrays["values"]
        if U.ndim != 2 or values.shape != U.shape[1:] or len(U) != data.d:
            raise ProtocolError(
                f"U and values in the server's message have the shapes {U.shape} and {values.shape}, but this party "
                f"has {data.d} people and needs ({data.d}, k) and (k,). {OTHER_SERVER}"
            )
        return {"n": np.array(data.n)}, {"U": U, "values": values}

    @staticmethod
    def local_results(memory: Arrays, data: PartyColumns) -> Arrays:
        if memory:
            return data.party_result(memory["U"], memory["values"])
        return {}

    def server(self, state: LoadingsState, total: Arrays, answered: frozenset[int]) -> LoadingsState:
        return replace(state, done=True)

    def status(self, state: LoadingsState) -> Status | None:
        return status_when(state.done)

    def finish(self, state: LoadingsState, model: Model) -> Model:
        return model


BOTH: Final[dict[str, type[Stage[Any]]]] = {stage.name: stage for stage in (ColumnsOpening, LoadingsStage)}
