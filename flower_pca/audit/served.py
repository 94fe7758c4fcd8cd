"""What the answers of a node's algorithms bring out, by the kinds of their parts, along a small run of each."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from flower_pca import assembly, registry
from flower_pca.clients.policy.offered import everything
from flower_pca.clients.policy.rules import Rules
from flower_pca.core.drive import rounds
from flower_pca.core.kinds import Kind
from flower_pca.masking import messages
from flower_pca.rows.stream import Stream
from flower_pca.simulation.in_process import InProcess, Shards
from flower_pca.simulation.sites import clients_of
from flower_pca.stages.opening import Opening

_COLUMNS: Final = 6  # of the small runs


def why_not(rules: Rules, name: str) -> str:
    """Why an algorithm is not served; "" if it is."""
    stage = registry.STAGES[name]
    if name not in rules.served:
        return "it compares rows, and is not named in allow" if rules.allow is None else "it is not named in allow"
    if rules.masked_only and not stage().additive:
        return "its answers are no sums, and masked_only is set"
    if noised(rules) and not stage.bounded:
        return "noise cannot cover it, and the rules insist on noise"
    return ""


def noised(rules: Rules) -> bool:
    """Whether the node answers runs with noise only."""
    return rules.floor.noise is not None or rules.floor.clip is not None


def kinds(rules: Rules, name: str) -> frozenset[Kind]:
    """The kinds that answers to an algorithm's messages are made of, opening and closing included."""
    own = asked(name, masked=rules.masked_only, noised=noised(rules))
    found = frozenset(kind for kind, shows_own in own if not shows_own or rules.share_own or rules.masked_only)
    if noised(rules):  # the number of rows then counts clients
        return frozenset(kind for kind in found if not kind.counts_rows)
    return found


@functools.cache
def asked(name: str, *, masked: bool = False, noised: bool = False) -> frozenset[tuple[Kind, bool]]:
    """The kinds of parts in a small run, and whether they show a node's own results."""
    found = set[tuple[Kind, bool]]()
    for stage, arrays in _run("krylov" if name in registry.BESIDE else name, masked, noised, beside=name):
        parts = registry.STAGES[stage].parts(arrays, _COLUMNS)
        found |= {(part.kind, part.own) for part in parts.values() if 0 not in part.shape}
    return frozenset(found)


def _run(name: str, masked: bool, noised: bool, *, beside: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Stage and arrays of every message of a small run; of `beside` alone, if it is a stage beside algorithms."""
    shards = [np.random.default_rng(i).standard_normal((40, _COLUMNS)) * (_COLUMNS - np.arange(6.0)) for i in range(3)]
    mask = True if masked else None
    if name in registry.ALONE:
        transport: Any = Shards(clients_of(shards, missing=False))
        run: Any = assembly.standardizing(mask=mask)
    elif name in registry.TRACKERS:
        transport = InProcess([Stream(X, batch=20) for X in shards])
        run = assembly.tracking(registry.tracker(name), n_components=2, steps=1, mask=mask)
    else:
        transport = Shards(clients_of(shards, missing=False))
        own: dict[str, Any] = {"dp": "dp(epsilon=1e3, delta=1e-6, clip=20.0)"} if noised else {"evaluate": True}
        algorithm = registry.make(name)
        limit = {"max_rounds": 3} if hasattr(algorithm, "max_rounds") else {}
        own |= dict.fromkeys({beside} & set(registry.BESIDE), True)
        run = assembly.run(assembly.question(algorithm, n_components=2, mask=mask, **limit, **own))
    for message in rounds(run, transport):
        arrays = message.arrays_for(message.to[0])
        stage = messages.inner_stage(arrays) or message.stage
        if stage != messages.STAGE and (beside not in registry.BESIDE or stage == beside):
            yield stage, messages.plain(arrays)


def peaks(rules: Rules) -> bool:
    """Whether an opening can be asked for peaks, which masks and noise do not carry."""
    told = Opening.parts({"peaks": np.array(True), "seed": np.array(0), "width": np.array(1)}, 1)
    return "peak" in told and not rules.masked_only and not noised(rules)


def answered(rules: Rules) -> list[str]:
    """What is served of all that a node can be asked for by name."""
    return [name for name in everything() if not why_not(rules, name)]


def comparing(rules: Rules) -> list[str]:
    """The algorithms that compare rows, but for the budget's, whose noise covers that."""
    return [name for name in answered(rules) if registry.STAGES[name].by_row]
