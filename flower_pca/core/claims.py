"""Bounds on a client's answers that follow from the client's report about its rows in the opening.

Let X_i be the n_i rows of client i in the common frame, t_i their sum of squares, and C_i = X_i'X_i. By
Cauchy-Schwarz, |C_i z| <= t_i |z|, and similar bounds hold for everything that is computed from products
with C_i. An answer above its bound cannot come from these rows. A faulty or hostile client is therefore
named and excluded, whatever rows the other clients have. The table of kinds (`core.kinds`) has bounds for
most kinds of answers. For the other kinds, the bound is `MARGIN` times the stage's bound for n_i rows with
sum of squares t_i.

t_i is computed from the client's answer to the opening, and `check_opening` checks that the arrays of
this answer are consistent. Two arrays of other answers have no bound, because no stage defines a bound:
the factor of dcf_pca, and the moments of low_rank. Answers under masks have no bound either, because the
server sees no individual answer, and answers with noise have no bound. For a client without a claim, for
example a client that joined later, the bound is `MARGIN` times the bound for all rows together.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from flower_pca.base import linalg
from flower_pca.base.errors import OTHER_CLIENT, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import BoundInputs, Part
from flower_pca.core.model import Claim, Model
from flower_pca.core.stage import MARGIN, Arrays, Stage
from flower_pca.rows.frame import Frame, Moments

_SLACK: Final = 1e-3  # maximum relative error of sums in single precision
# Numbers with 16 bits may have an error of this share of the largest number in their column. The steps of float16
# are at least 2^-24, and the largest number of a column is scaled to at least 2^14.
_ROUNDING_16_BITS: Final = 2.0**-38
# Sums of squares of centered rows have a rounding error of this many times eps times the raw squares.
_ROUNDING_ERRORS: Final = 8.0
_REMEDY: Final = "Check the client's data."


def claim_of_answer(answer: Arrays, frame: Frame) -> Claim:
    """Return a client's number of rows and their sum of squares in a frame, from its answer to the opening.

    Missing values are filled as the frame defines. The sum includes the largest rounding error that is
    possible at the client's precision.
    """
    n = int(answer["n"])
    mean = answer["mean"]
    centre = 0.0 if frame.mean is None else frame.mean
    moments = Moments(n, mean, answer["m2"], answer.get("count"))
    rounded = _ROUNDING_ERRORS * float(answer["eps"]) * n * (mean**2 + np.square(centre))
    if frame.scale is not None:
        rounded = rounded / frame.scale**2
    return Claim(n, float(np.sum(moments.sums_in_frame(frame)[1] + rounded)))


def check_opening(answer: Arrays, block: Array, *, bits: int = 64) -> None:
    """Raise ProtocolError if an answer to the opening is inconsistent.

    The answer's product with a block and its peaks (the largest |x| of each column) must fit its moments.
    By Cauchy-Schwarz, |x_a'Xb| <= |x_a| sum_j |x_j| |b_j| for columns x_j. The peak of a column is at least
    the root of its mean square, and its distance from the mean is at most the root of the sum of squared
    deviations. The limits allow for rounding errors: the products of constant columns are not 0, because their
    means are rounded, and with 16 bits, the error of small numbers is relative to the largest number of their
    column.
    """
    size = np.sqrt(answer["m2"].astype(np.float64))
    eps = float(answer["eps"])
    means = answer["mean"].astype(np.float64)
    of_means = 4.0 * np.finfo(np.float64).eps * means
    rounded = float(answer["n"]) * of_means**2
    own = np.sqrt(size**2 + rounded)
    most = np.outer(own, own @ np.abs(block))
    limit = (1.0 + _SLACK) * most + eps * np.max(most, initial=0.0)
    if bits == 16:
        limit = limit + _ROUNDING_16_BITS * np.max(most, axis=0, initial=0.0)
    if (np.abs(answer["product"]) > limit).any():
        raise ProtocolError(
            "An answer to the opening contradicts itself: its product is larger than its squared deviations allow. "
            f"{OTHER_CLIENT}"
        )
    # All rows are divided by the largest peak of all clients, so a false peak would spoil the scale of every client.
    if "peak" in answer:
        seen = np.asarray(answer.get("count", answer["n"]))
        mean = np.abs(answer["mean"])
        variances = answer["m2"] / np.maximum(seen, 1)
        least = (1.0 - _SLACK) * np.sqrt(variances + mean**2)
        furthest = (1.0 + _SLACK) * (mean + size) + _ROUNDING_ERRORS * eps * mean
        fits = (answer["peak"] >= least) & (answer["peak"] <= furthest)
        # A column without values at this client has no mean to compare with.
        if not (fits | (seen == 0)).all():
            raise ProtocolError(
                "An answer to the opening contradicts itself: its peaks do not fit its means and squared deviations. "
                f"{OTHER_CLIENT}"
            )


@dataclass(frozen=True)
class AnswerChecker:
    """A judge that compares the answers to one message with the clients' reports about their rows.

    Parameters
    ----------
    stage : Stage
        The stage that sent the message.
    state
        The state of this stage.
    model : Model
        The model with the claims.
    """

    stage: Stage[Any]
    state: Any
    model: Model
    # This dictionary caches the lengths of the columns of each array in the message, by the id of the array.
    _known: dict[int, Array] = field(default_factory=dict, repr=False)

    def check(self, client: int, answer: Arrays, parts: Mapping[str, Part], sent: Arrays) -> None:
        """Raise ProtocolError, naming the client, if its answer cannot belong to the rows that it has reported.

        Parameters
        ----------
        client : int
            The client.
        answer : Arrays
            The client's answer.
        parts : mapping
            The kinds and shapes of the arrays in the answer, by name.
        sent : Arrays
            The message to which the client answers.
        """
        known = self.model.claims.get(client)
        if known is None:
            own = Claim(int(MARGIN * self.model.n), MARGIN * self.model.trace)
            # Bounds of eigenvalues are divided by the number of rows, so 1 is used if the number is unknown.
            least = 1
            rows = f"{MARGIN:g} times the rows of all clients"
        else:
            own, least, rows = known, known.n, "its own rows"
        of_stage: dict[str, Any] | None = None
        for name, part in parts.items():
            if part.kind.counts_rows:
                if known is not None and int(answer[name]) != own.n:
                    raise ProtocolError(
                        f"Client {client} reports {answer[name]} rows ({name}) in this answer, but reported {own.n} in "
                        f"the opening. {_REMEDY}"
                    )
                continue
            size = part.kind.size(np.asarray(answer[name], dtype=np.float64))
            if part.kind.bound is not None:
                lengths = functools.partial(self._column_lengths, part, sent, parts)
                most = part.kind.bound(BoundInputs(own.n, least, own.squares, self.model.d, lengths))
            else:
                if of_stage is None:
                    of_stage = self._stage_bounds(own)
                most = of_stage.get(name, np.inf)
            if (size > (1.0 + _SLACK) * most).any():
                raise ProtocolError(
                    f"The array {name} in the answer of client {client} has entries that are larger than {rows} "
                    f"allow. {_REMEDY}"
                )

    def _stage_bounds(self, claim: Claim) -> dict[str, Any]:
        """Return the stage's bounds on the arrays of an answer from rows with this claim, or inf for no bound."""
        alone = replace(self.model, n=claim.n, trace=claim.squares)
        named = self.stage.bounds(self.state, alone).items()
        bounds = {name: np.asarray(bound) for name, bound in named}
        return {name: np.where(bound > 0.0, MARGIN * bound, np.inf) for name, bound in bounds.items()}

    def _column_lengths(self, part: Part, sent: Arrays, parts: Mapping[str, Part]) -> Array | float:
        """Return the lengths of the columns from which an array is computed, or 1 if the client chooses the columns."""
        if part.of in parts:
            return 1.0
        Z = part.block(sent)
        # The id is safe as a key, because the message keeps its arrays alive for as long as this judge exists.
        if id(Z) not in self._known:
            self._known[id(Z)] = linalg.column_norms(Z)
        return self._known[id(Z)]
