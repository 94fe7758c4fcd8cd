"""What is required of one answer: that it is awaited, and made of the parts that its message asks for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.parts import Kind, Part, Shape
from flower_pca.core.stage import Broadcast, Reply

_DATA = "Check the client's data."
_LARGEST = 1e140  # beyond which sums of squares overflow
_MOST_ROWS = 10**12


class UnawaitedError(ProtocolError):
    """An answer that nobody waits for: discarded, and not held against its client."""


def check(reply: Reply, sent: Broadcast, answered: Collection[int]) -> None:
    """Raise ProtocolError, naming the client, unless this is its one answer to the message sent."""
    if reply.client not in sent.asked:
        rule, got, remedy = "asked for", "one of a client not asked", "It was not counted."
    elif reply.number != sent.number:
        rule, got, remedy = f"one to message {sent.number}", f"one to message {reply.number}", "It came late."
    elif reply.client in answered:
        rule, got, remedy = "a single one", "another one", "It was not counted."
    else:
        return
    raise UnawaitedError(f"The answer of client {reply.client}", must=rule, got=got, then=remedy)


def check_arrays(reply: Reply, expected: Mapping[str, Part]) -> None:
    """Raise ProtocolError, naming the client, unless its answer is made of these parts, in finite numbers."""
    if reply.arrays.keys() != expected.keys():
        rule = f"made of {', '.join(sorted(expected))}"
        got, remedy = ", ".join(sorted(reply.arrays)) or "nothing", "Install the same flower_pca everywhere."
        raise ProtocolError(f"The answer of client {reply.client}", must=rule, got=got, then=remedy)
    for name, part in expected.items():
        if fault := _fault(reply.arrays[name], part):
            rule, got = fault
            raise ProtocolError(f"The answer of client {reply.client}, {name},", must=rule, got=got, then=_DATA)


def _fault(a: Array, part: Part) -> tuple[str, str] | None:
    """What is wrong with an array that should be this part: the rule, and what it is instead; None for nothing."""
    if not _fits(a.shape, part.shape) or a.dtype.kind not in "fiu" or a.dtype.itemsize > 8:
        rule = f"a real array of shape {tuple('any' if s is None else s for s in part.shape)}"
        return rule, f"shape {a.shape} and dtype {a.dtype}"
    largest = max(float(a.max()), -float(a.min())) if a.size else 0.0  # NaN if an entry is
    if not math.isfinite(largest):
        return "finite", f"{int(a.size - np.isfinite(a).sum())} NaN or infinite entries"
    if largest > _LARGEST:
        return f"at most {_LARGEST:g} in size", f"{largest:g}"
    if part.kind is Kind.ROWS and (a.dtype.kind not in "iu" or not 1 <= a <= _MOST_ROWS):
        return f"a whole number between 1 and {_MOST_ROWS:g}", f"{a}"
    return None


def _fits(found: tuple[int, ...], shape: Shape) -> bool:
    if found == shape:
        return True
    return len(found) == len(shape) and all(s in (None, t) for s, t in zip(shape, found, strict=True))
