"""What an honest but curious server sees of one client: pairs of a block Z and an answer Y that stand for Y = C_i Z.

What an answer tells follows from the kinds of its parts, as the stage itself says them (`core.parts`). An answer of
other kinds is taken as the attack on C_i Z would: for the product with a block of its shape that the client was sent.
That counts as a claim.

What a node's rules let it answer is asked of small runs: every algorithm that they allow is run, and its messages read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flower_pca import assembly, registry
from flower_pca.algorithms.covariance import unpack
from flower_pca.base.linalg import Array
from flower_pca.clients.policy.rules import Rules, everything
from flower_pca.core import compatible
from flower_pca.core.drive import rounds
from flower_pca.core.kinds import Kind
from flower_pca.core.stage import Arrays, Broadcast
from flower_pca.masking import messages
from flower_pca.rows.frame import Frame
from flower_pca.rows.stream import Stream
from flower_pca.simulation.in_process import InProcess, Shards
from flower_pca.simulation.sites import clients_of
from flower_pca.stages.opening import Opening, block_of


@dataclass(frozen=True)
class Pair:
    """A block and an answer; `exact` if the answer is C_i Z by the algorithm's own formula, else only taken for it."""

    Z: Array
    Y: Array
    exact: bool


@dataclass
class View:
    """One client as the server sees it; it gathers what later messages need to be read."""

    frame: Frame
    d: int
    opening: Pair | None = None
    factor: Array | None = None

    def read(self, message: Broadcast, client: int, up: Arrays) -> Pair | None:
        """The pair in the answer to a message; None if there is none."""
        sent = message.arrays_for(client)
        parts = registry.STAGES[message.stage].parts(sent, self.d)
        told = {part.kind: up[name] for name, part in parts.items()}
        if Kind.LOCAL_PRODUCT in told:
            self.opening = open_answer(block_of(sent, self.d), up, self.frame)
            return self.opening
        for name, part in parts.items():
            if part.kind is Kind.PRODUCT:
                return Pair(up[part.of] if part.of in up else part.block(sent), up[name], exact=True)
        if Kind.EIGENVECTORS in told:
            return self._eigenpairs(told[Kind.EIGENVECTORS])
        if Kind.FACTOR in told:
            self.factor = told[Kind.FACTOR]
            return None
        if Kind.LIFTED in told:
            return self._lift(sent, told[Kind.LIFTED])
        if Kind.GRAM in told:
            C = unpack(told[Kind.GRAM])
            return Pair(np.eye(len(C)), C, exact=True)
        return _alike(sent, up)

    def _eigenpairs(self, V: Array) -> Pair | None:
        """Eigenvectors come with their eigenvalues, sent or not: v'(C B) = lambda v'B, and the opening has told C B."""
        assert self.opening is not None
        ours, theirs = V.T @ self.opening.Z, V.T @ self.opening.Y
        size = np.sum(ours**2, axis=1)
        return Pair(V, V * (np.sum(ours * theirs, axis=1) / np.where(size > 0.0, size, 1.0)), exact=True)

    def _lift(self, sent: Arrays, B: Array) -> Pair:
        """B = X'Q part and X block = Q R, so that C block = B part^-1 R."""
        assert self.factor is not None
        Y = B @ np.linalg.lstsq(sent["part"], self.factor, rcond=None)[0]
        return Pair(sent["block"], Y, exact=True)


def open_answer(B: Array, up: Arrays, frame: Frame) -> Pair:
    """A client's product in its own local frame, as one in the frame of all: C_i (D B), with D the scale."""
    if frame.mean is None:
        shift = up["mean"]
    else:
        shift = up["mean"] - frame.mean
    Y = up["product"].astype(np.float64) + float(up["n"]) * np.outer(shift, shift @ B)
    if frame.scale is None:
        D = np.ones((len(B), 1))
    else:
        D = frame.scale[:, None]
    return Pair(B * D, Y / D, exact=True)


def together(pairs: list[Pair | None]) -> Pair | None:
    """What is seen of the clients' sum: nothing of answers that do not belong to one and the same block."""
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs) or not all(np.array_equal(pair.Z, known[0].Z) for pair in known):
        return None
    return Pair(known[0].Z, np.sum([pair.Y for pair in known], axis=0), all(pair.exact for pair in known))


def _alike(sent: Arrays, up: Arrays) -> Pair | None:
    for Z in sent.values():
        for Y in up.values():
            if Z.ndim == 2 and Z.shape == Y.shape:
                return Pair(Z, Y, exact=False)
    return None


_COLUMNS: Final = 6  # of the small runs


def why_not(rules: Rules, name: str) -> str:
    """Why an algorithm is not served; "" if it is."""
    stage = registry.STAGES[name]
    if name not in rules.services:
        if rules.allow is None:
            return "it compares rows, and is not named in allow"
        return "it is not named in allow"
    if rules.masked_only and not stage().additive:
        return "its answers are no sums, and masked_only is set"
    if has_noise(rules) and not stage.bounded:
        return "noise cannot cover it, and the rules insist on noise"
    return ""


def has_noise(rules: Rules) -> bool:
    """Whether the node answers runs with noise only."""
    return rules.floor is not None


def kinds(rules: Rules, name: str) -> frozenset[Kind]:
    """The kinds that answers to an algorithm's messages are made of, opening and closing included."""
    own = kinds_asked_of(name, masked=rules.masked_only, noised=has_noise(rules))
    found = frozenset(kind for kind, shows_own in own if not shows_own or rules.share_own or rules.masked_only)
    if has_noise(rules):  # the number of rows then counts clients
        return frozenset(kind for kind in found if not kind.counts_rows)
    return found


@functools.cache
def kinds_asked_of(name: str, *, masked: bool = False, noised: bool = False) -> frozenset[tuple[Kind, bool]]:
    """The kinds of parts in a small run, and whether they show a node's own results."""
    found = set[tuple[Kind, bool]]()
    for stage, arrays in _run(_carrier(name, masked), masked, noised, beside=name):
        parts = registry.STAGES[stage].parts(arrays, _COLUMNS)
        found |= {(part.kind, part.own) for part in parts.values() if 0 not in part.shape}
    return frozenset(found)


def _carrier(name: str, masked: bool) -> str:
    """The algorithm whose run shows what this stage asks: itself, or the first that goes with a stage beside it."""
    if name not in registry.BESIDE:
        return name
    on = [name]
    if masked:
        on.append("mask")
    return next(kind for kind in registry.ALGORITHMS if not compatible.missing(registry.make(kind), *on))


def _run(name: str, masked: bool, noised: bool, *, beside: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Stage and arrays of every message of a small run; of `beside` alone, if it is a stage beside algorithms."""
    shards = [np.random.default_rng(i).standard_normal((40, _COLUMNS)) * (_COLUMNS - np.arange(6.0)) for i in range(3)]
    shards = [X + 20.0 * X[:, :1] for X in shards]  # so that there is more than noise
    if masked:
        mask = True
    else:
        mask = None
    if name in registry.ALONE:
        transport: Any = Shards(clients_of(shards, missing=False))
        run: Any = assembly.standardizing(mask=mask)
    elif name in registry.TRACKERS:
        transport = InProcess([Stream(X, batch=20) for X in shards])
        run = assembly.tracking(registry.tracker(name), n_components=2, steps=1, mask=mask)
    else:
        transport = Shards(clients_of(shards, missing=False))
        if noised:
            own: dict[str, Any] = {"dp": "dp(epsilon=1e3, delta=1e-6, clip=20.0)"}
        else:
            own = {"evaluate": True}
        algorithm = registry.make(name)
        if hasattr(algorithm, "max_rounds"):
            algorithm = registry.make(algorithm, max_rounds=3)
        own |= {"n_components": 2, **assembly.beside(beside)}
        run = assembly.run(assembly.question(algorithm, mask=mask, **own))
    for message in rounds(run, transport):
        arrays = message.arrays_for(message.to[0])
        stage = messages.inner_stage(arrays) or message.stage
        if stage != messages.STAGE and (beside not in registry.BESIDE or stage == beside):
            yield stage, messages.plain(arrays)


def peaks(rules: Rules) -> bool:
    """Whether an opening can be asked for peaks, which masks and noise do not carry."""
    told = Opening.parts({"peaks": np.array(True), "seed": np.array(0), "width": np.array(1)}, 1)
    return "peak" in told and not rules.masked_only and not has_noise(rules)


def algorithms(rules: Rules) -> list[str]:
    """What is served of all that a node can be asked for by name."""
    return [name for name in everything() if not why_not(rules, name)]


def comparing(rules: Rules) -> list[str]:
    """The algorithms that compare rows, but for the budget's, whose noise covers that."""
    return [name for name in algorithms(rules) if registry.STAGES[name].by_row]
