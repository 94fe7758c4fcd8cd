"""PerPCA with the rounds of all clients computed at once: a client of a few columns spends its time between products.

The server's half, the start, the opening and the closing are the package's own. Only the rounds of choice 1 with polar
factors are batched; `tests/test_sims_personal.py` holds them against the package, with which they agree to rounding.
Like `sims.batched`, this goes below the package's public face.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from flower_pca import PerPCA, PersonalResult, assembly, client_half, make, registry
from flower_pca.core.drive import drive
from flower_pca.core.stage import Broadcast, Reply
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards
from sims.common import report
from sims.personal import methods
from sims.personal.problems import Array


class Together(Shards):
    """All clients of a run, with their S_i in a stack."""

    def __init__(self, shards: Sequence[Any]) -> None:
        super().__init__([LocalData(X) for X in shards])
        self.S = np.array(methods.covariances(shards))

    def ask(self, message: Broadcast) -> Iterator[Reply]:
        """The answers: those to a round all at once, if every client has its local components."""
        if self._batched(message):
            yield from self._round(message)
        else:
            yield from super().ask(message)

    def _batched(self, message: Broadcast) -> bool:
        sent = message.arrays
        if message.stage != PerPCA.name or "U" not in sent or not sent["polar"] or int(sent["choice"]) != 1:
            return False
        shapes = {memory["V"].shape if "V" in memory else () for memory in self.memories}
        narrow = any(len(memory.get("narrow", ())) for memory in self.memories)
        return len(shapes) == 1 and shapes != {()} and not narrow and not message.layers and not sent["samples"]

    def _round(self, message: Broadcast) -> Iterator[Reply]:
        """A round, as at the head of `PerPCA`."""
        self._number = message.number + 1
        U, b, eta = message.arrays["U"], message.arrays["b"], float(message.arrays["eta"])
        V = np.array([memory["V"] for memory in self.memories])
        beside = _orth(_outside(_polar(_outside(V, U)), U))
        W = np.concatenate([np.broadcast_to(U, (len(V), *U.shape)), beside], axis=2)
        G = self.S @ W
        WG = _turned(W) @ G
        explained = np.einsum("mdk,mdk->m", W, G)
        W = W + eta * (G - W @ (WG + _turned(WG)) / 2.0)
        shared, V = W[:, :, : U.shape[1]], _polar(W[:, :, U.shape[1] :])
        probed = V @ (_turned(V) @ b)
        for i in message.to:
            self.memories[i] = {**self.memories[i], "V": V[i]}
            found = {"M": shared[i], "f": explained[i], "Vb": probed[i], "w": 1.0, "probed": 1.0}
            answer = {name: np.array(value) for name, value in found.items()}
            yield Reply(i, message.number, answer, self.clients[i].heading, self._identities[i].name)


def fit(algorithm: str, shards: Sequence[Any], r1: int, *, seed: int) -> tuple[Array, list[Array]]:
    """U (d x r1) and every client's V_i (d x r2) at the end of a run."""
    report.ran(algorithm)
    chosen, clients = make(algorithm), Together(shards)
    run = assembly.run(assembly.config(chosen, n_components=r1, seed=seed, center=False), judged=False)
    with warnings.catch_warnings():  # as of `sims.personal.runs`
        warnings.filterwarnings("ignore", message="theta is", category=UserWarning)
        result = cast(PersonalResult, drive(run, clients))
    stage = registry.closing_of(chosen).name
    local = (client_half.local_results(stage, *kept) for kept in zip(clients.memories, clients.clients, strict=True))
    return result.components_.T, [np.asarray(found["components"]).T for found in local]


def _outside(V: Array, U: Array) -> Array:
    """(I - UU')V of each block, twice."""
    V = V - U @ (U.T @ V)
    return np.asarray(V - U @ (U.T @ V))


def _polar(V: Array) -> Array:
    """V (V'V)^(-1/2) of each block: these are near orthonormal ones, of which V'V tells as much as V."""
    values, Q = np.linalg.eigh(_turned(V) @ V)
    return np.asarray(V @ ((Q / np.sqrt(values)[:, None, :]) @ _turned(Q)))


def _orth(V: Array) -> Array:
    """Orthonormal bases of the blocks, by factors R of a positive diagonal."""
    Q, R = np.linalg.qr(V)
    return np.asarray(Q * np.where(np.diagonal(R, axis1=1, axis2=2) < 0.0, -1.0, 1.0)[:, None, :])


def _turned(V: Array) -> Array:
    return V.transpose(0, 2, 1)
