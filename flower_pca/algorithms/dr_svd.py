"""DR-SVD: the randomized SVD of Halko, Martinsson and Tropp for distributed rows.

The run has three messages, and the state counts them in `step`. The server merges the answers to the
first message into a sum, to the second into a stack of small triangular factors, and to the third into
another sum. In the third message, `personal` sends every client its part of the orthonormal factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import OTHER_SERVER, ProtocolError
from flower_pca.base.history import Outcome, Status
from flower_pca.base.linalg import Array
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.kinds import BLOCK, MATRIX, ArrayRule, Kind, Part, index_rule
from flower_pca.core.model import Model
from flower_pca.core.stage import Arrays, Merge, Stack, add_answer, stack_answer
from flower_pca.rows.local import LocalData


@dataclass(frozen=True)
class DRSVDState:
    """The state of the server in `DRSVD`.

    Attributes
    ----------
    step : int
        The number of answered messages. Message 0 asks for the sum of C_i Omega, message 1 for the triangular
        factors of Y = A (C Omega), and message 2 for the sum B = Q'A.
    width : int
        The number of wanted columns.
    block : ndarray
        The block to send: Omega, or an orthonormal basis of C Omega after the first answers.
    parts : dict
        Each client's part of the orthonormal factor, which is known after the second answers.
    Z : ndarray or None
        The wanted columns and one more, or None until the last answers have arrived.
    """

    step: int
    width: int
    block: Array
    parts: dict[int, Array]
    Z: Array | None = None


@dataclass(frozen=True, kw_only=True)
class DRSVD(Algorithm[DRSVDState]):
    """Compute an approximate PCA in three rounds, by a randomized SVD.

    A holds the rows of all clients. Q is an orthonormal basis of the range of Y = A A'A Omega, and the
    components follow from the SVD of the small matrix B = Q'A.

    Round 1 computes G = A'A Omega as a sum over the clients, for a random d x r block Omega. In round 2,
    each client computes the QR factorization of its part of Y = A orth(G), and sends only the factor R_i.
    The server factors the stack of all R_i, and returns to each client its r x r part of the orthonormal
    factor. This is TSQR, which gives an orthonormal Q for any condition number. Round 3 computes B = sum
    Q_i'A_i. No array with a side of n_i leaves a client.

    Reference: Halko, Martinsson, Tropp 2011; TSQR: Demmel, Grigori, Hoemmen, Langou 2012.
    Cost: 12 n_i d r flops on a client. In each of the three rounds, the server sends r columns of d floats.
    In rounds 1 and 3, each client sends r columns of d floats. In addition, one r x r factor is sent
    each way.
    Prefer it: for many components in only three rounds, if the eigenvalues of the data decrease fast.

    Parameters
    ----------
    rank : int or None, default=None
        r, the number of columns of Omega. The default is k + (d - k) // 4 for k components and d columns of data.
    oversample : int, default=0
        Columns that are kept beyond `n_components`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import DRSVD, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate(DRSVD(rank=4), sites, n_components=2)
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    name: ClassVar[str] = "dr_svd"
    basic: ClassVar[bool] = True
    asks: ClassVar[Mapping[str, ArrayRule]] = {"step": index_rule(2), "block": BLOCK, "part": MATRIX}
    fixed_set: ClassVar[bool] = True

    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is not None:
            checks.integer("rank of dr_svd", self.rank, least=1)

    def start(self, model: Model) -> DRSVDState:
        width = model.columns.shape[1]
        # The seed differs from the opening's, because C was already multiplied with the opening's block.
        seed = model.seed + model.restarts + 1
        rank = width + (model.d - width) // 4
        if self.rank is not None:
            rank = min(max(self.rank, width), model.d)
        return DRSVDState(0, width, linalg.random_block(model.d, rank, seed), {})

    def broadcast(self, state: DRSVDState) -> Arrays:
        return {"step": np.array(state.step), "block": state.block}

    def personal(self, state: DRSVDState) -> Mapping[int, Arrays]:
        return {client: {"part": part} for client, part in state.parts.items()}

    @staticmethod
    def parts(arrays: Arrays, d: int | None) -> Mapping[str, Part]:
        step, block = int(arrays["step"]), arrays["block"]
        if step == 0:
            return {"G": Part(block.shape, Kind.PRODUCT)}
        if step == 1:  # A client with fewer than r rows sends a shorter factor.
            return {"R": Part((None, block.shape[1]), Kind.FACTOR, of="block")}
        return {"B": Part((len(block), arrays["part"].shape[1]), Kind.LIFTED, of="part")}

    @staticmethod
    def client(arrays: Arrays, data: LocalData, memory: Arrays) -> tuple[Arrays, Arrays]:
        step, block = int(arrays["step"]), arrays["block"]
        if step == 0:
            return {"G": data.matmat(block)}, memory
        along, adjoint = data.sketch(block)
        Q, R = linalg.qr(along)
        if step == 1:
            return {"R": R}, memory
        # The client factors its part again in round 3, because this is cheaper than storing n_i x r numbers. On
        # the same machine, the result of the factorization is identical.
        return {"B": adjoint(Q @ _part_in_column_space(R, arrays["part"]))}, memory

    def merging(self, state: DRSVDState) -> Merge:
        if state.step == 1:
            return stack_answer
        return add_answer

    def server(self, state: DRSVDState, total: Any, answered: frozenset[int]) -> DRSVDState:
        if state.step == 0:
            # Without `orth`, the singular values of A G would be about the third powers of the singular values
            # of A, and rounding errors would destroy the small values.
            return replace(state, step=1, block=linalg.orth(total["G"]))
        if state.step == 1:  # The orthonormal factor of all R_i is split into the clients' parts.
            # The factors can have different lengths, because a client may have fewer than r rows.
            ends = np.cumsum([len(reply["R"]) for reply in total.values()])
            clients = list(total)
            Q = linalg.orth_in_place(_stack_of_factors(total, int(ends[-1])))
            return replace(state, step=2, parts=dict(zip(clients, np.split(Q, ends[:-1]), strict=True)))
        B = total["B"]
        # The closing stage computes the gap in the spectrum from one additional direction.
        Z = linalg.leading_left_vectors(B, min(state.width + 1, len(B)))
        return replace(state, step=3, parts={}, Z=Z)

    def status(self, state: DRSVDState) -> Status | None:
        if state.Z is None:
            return None
        return Status(Outcome.DONE, "all three rounds are done; the result is approximate (see residuals_)")

    def finish(self, state: DRSVDState, model: Model) -> Model:
        return model if state.Z is None else model.with_leading(state.Z, state.width)

    def rounds(self, state: DRSVDState) -> int:
        return state.step


def _stack_of_factors(answers: Stack, rows: int) -> Array:
    """Return all factors below each other, in the memory order of LAPACK. The answers are removed one by one."""
    width = next(iter(answers.values()))["R"].shape[1]
    stack: Array = np.empty((rows, width), order="F")
    start = 0
    for client in list(answers):
        R = answers.pop(client)["R"]
        stack[start : start + len(R)] = R
        start += len(R)
    return stack


def _part_in_column_space(R: Array, part: Array) -> Array:
    """Return the client's part of the orthonormal factor, projected onto the column space of R.

    If the block lacks full rank, QR fills Q up with arbitrary columns, which would reveal individual rows.
    The projection removes these columns.
    """
    if len(part) != len(R):
        raise ProtocolError(
            f"The array part of the server's message has {labels.count(len(part), 'row')}, but the factor of this "
            f"node has {len(R)}. {OTHER_SERVER}"
        )
    U, s, _ = np.linalg.svd(R, full_matrices=False)
    least = max(R.shape) * np.finfo(R.dtype).eps * s.max(initial=0.0)
    U = U[:, s > least]
    # The memory order affects rounding, and the parts are columns of a larger matrix at the server.
    return np.asarray(U @ (U.T @ np.ascontiguousarray(part)))
