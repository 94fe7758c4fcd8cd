"""Leak, Convergence: what an audit notes after every message, of a client and of the run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What the server knows of one client after a message. Errors are relative to ||C_i||_F; 1 is knowing nothing.

    Attributes:
        message: Number of the message, from 1.
        stage: What it belonged to.
        client: Position of the client.
        numbers: Independent numbers told about C_i, by answers that are C_i times a block and by the variances of the
            opening.
        unknowns: d (d + 1) / 2.
        minimum_norm: Error of the solution of least norm, Y pinv(Z), with every answer taken for C_i Z.
        symmetric: Error of the symmetric solution of least norm, likewise.
        exact: The same from those answers only that are C_i Z by the algorithm's own formula.
        angle: Largest angle in radians between the leading k-spaces of the symmetric solution and of C_i.
        outside: Error of the newest answer outside the span of its block, against C_i Z there; None if masked.
        guess: Error of C / N: what knowing the sum exactly tells of one of N clients.
    """

    message: int
    stage: str
    client: int
    numbers: int
    unknowns: int
    minimum_norm: float
    symmetric: float
    exact: float
    angle: float
    outside: float | None
    guess: float

    @property
    def error(self) -> float:
        """The least error that any of the attacks comes to."""
        return min(self.minimum_norm, self.symmetric, self.exact)


@dataclass(frozen=True)
class Convergence:
    """Where the components stood after a message: the sine to the true ones, and ||(I - ZZ')CZ||_F / ||CZ||_F."""

    message: int
    sine: float
    kkt: float
