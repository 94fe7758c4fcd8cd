"""What every node refuses, without any rule of its own: messages that no strategy of ours sends."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flower_pca import wire
from flower_pca.base.errors import ProtocolError
from flower_pca.core.stage import Arrays
from flower_pca.masking import messages

_LOOPS: Final = ("steps", "inner_steps")  # arrays of a message that say how often a node repeats its work
_STEPS: Final = 10_000  # of these together, at most: no message keeps a node busy for good
_SENDER: Final = "Check the sender."


def check(request: wire.Request) -> None:
    """Refuse arrays that no strategy sends."""
    for name, a in {**request.arrays, **_framed(request)}.items():
        if a.dtype.kind not in "fiub" or not np.isfinite(a).all():
            got = f"dtype {a.dtype}" if a.dtype.kind not in "fiub" else "NaN or infinite entries"
            raise ProtocolError(f"{name} of a message", must="real and finite", got=got, then=_SENDER)
    for name, a in messages.plain(request.arrays).items():
        if a.ndim > 2:  # products take stacks of blocks too, which no rule of the node has in view
            rule = "a number, a vector or a matrix"
            raise ProtocolError(f"{name} of a message", must=rule, got=f"{a.ndim} dimensions", then=_SENDER)
    steps = math.prod(max(1.0, float(np.max(request.arrays[n], initial=1))) for n in _LOOPS if n in request.arrays)
    if steps > _STEPS:
        what = f"{' times '.join(n for n in _LOOPS if n in request.arrays)} of a message"
        raise ProtocolError(what, must=f"at most {_STEPS}", got=f"{steps:g}", then="Ask for fewer steps.")


def check_frame(request: wire.Request, d: int | None) -> None:
    """Refuse a frame that no strategy sends: it could single out rows, which no answer may do."""
    framed = _framed(request)
    for name, a in framed.items():
        if a.shape != (d,) or a.dtype.kind != "f":
            got = f"shape {a.shape} and dtype {a.dtype}"
            raise ProtocolError(f"The {name} of a message", must=f"{d} numbers", got=got, then=_SENDER)
    if "scale" in framed and not (framed["scale"] > 0.0).all():
        raise ProtocolError("The scale of a message", must="above 0", got="others", then=_SENDER)


def _framed(request: wire.Request) -> Arrays:
    frame = request.frame
    parts = (("mean", frame.mean), ("scale", frame.scale), ("fill", frame.fill))
    return {name: a for name, a in parts if a is not None}
