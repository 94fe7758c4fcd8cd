"""A client's half of a message: what it returns of its rows, masked or plain, and what it keeps.

The layers that the message names see it first, in the order of the registry's table, and seal the
answer in the other order. A layer that it does not name is not even imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flower_pca import registry
from flower_pca.base.bits import Bits, system_bits
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array, random_block
from flower_pca.base.options import option
from flower_pca.base.shown import shown
from flower_pca.core.kinds import require_finite
from flower_pca.core.layer import NOBODY, Layer, Sayings, Who, Work
from flower_pca.core.stage import KEY, Arrays, Stage
from flower_pca.layers import NOISE
from flower_pca.masking import messages
from flower_pca.masking.dither import DitherSource, system_dither
from flower_pca.masking.messages import Demands
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

if TYPE_CHECKING:
    from flower_pca.rows.fixed import FixedData

Source: TypeAlias = "Callable[[LocalData], FixedData]"  # the fixed statistics of rows


def answer(
    stage: str,
    arrays: Arrays,
    data: Any,
    memory: Arrays,
    *,
    layers: Sayings | None = None,
    bits: Bits = system_bits,
    demands: Demands | None = None,
    fixed: Source | None = None,
    dither: DitherSource = system_dither,
    who: Who = NOBODY,
) -> tuple[Arrays, Arrays]:
    """What a client returns to a message, and what it keeps.

    Parameters
    ----------
    stage : str
        The stage that asks.
    arrays : Arrays
        What it asks.
    data
        The client's rows, in the message's frame.
    memory : Arrays
        What the client has kept.
    layers : Sayings or None, default=None
        What the layers of the message say.
    bits : Bits
        Where noise comes from.
    demands : Demands or None, default=None
        Under masks, what the client asks of those that it is summed with.
    fixed : Source or None, default=None
        What it gives of rows is what halves that do not compare rows get in their place.
    dither : DitherSource
        Draws what blurs the steps of fixed point under masks, and the keys of stages that draw.
    who : Who, default=Who(position=-1, name='')
        The client, where a message has numbers for each.
    """
    says = layers or {}
    if stage != messages.STAGE:
        # a message without masks ends whatever masks the client kept secrets of
        if memory:
            memory = messages.plain(memory)
        return _answer(Work(stage_of(stage), arrays, data, memory, who, bits), says, fixed, dither)
    # only here, as it needs cryptography, which no run without masks imports
    from flower_pca.masking import client

    terms = demands or Demands()

    def half(stage: str, arrays: Arrays, data: Any, memory: Arrays, /, *, summed: int) -> tuple[Arrays, Arrays]:
        work = Work(stage_of(stage), arrays, data, memory, who, bits, summed, masked=True, trusts=terms.shares)
        return _answer(work, says, fixed, dither)

    return client.answer(arrays, says, data, memory, half, terms, dither)


def _answer(work: Work, says: Sayings, fixed: Source | None, dither: DitherSource) -> tuple[Arrays, Arrays]:
    """The answer to a message of a stage, and what is kept for it."""
    on: list[type[Layer]] = []
    if says:
        on = _layers_of(says)
    tracks = work.stage.by_row and work.stage.name in registry.TRACKERS
    if isinstance(work.data, Stream) != tracks:
        needs, has = ("a Stream", "plain rows") if tracks else ("plain rows", "a Stream")
        raise ProtocolError(
            f"{work.stage.name} works on {needs}, but this client has {has}. Serve Stream(rows, batch=60) to "
            "trackers, and plain rows to all other algorithms."
        )
    if work.stage.draws:
        work = replace(work, memory={**work.memory, KEY: _key(work, dither)})
    for layer in on:
        work = layer.read(says[layer.name], work)
    if isinstance(work.data, LocalData) and not work.data.n and NOISE not in says:
        up, after = _without_any_row(work)
    elif fixed is None:
        up, after = work.stage.client(work.arrays, work.data, work.memory)
    else:
        up, after = _without_rows(work, fixed, by_row=any(layer.by_row for layer in on))
    if work.stage.draws:
        # Every message has its own key. A stage that needs this key later keeps a copy under another name.
        after = {name: a for name, a in after.items() if name != KEY}
    for layer in reversed(on):
        up = layer.seal(says[layer.name], work, up)
    return up, {**after, **work.keeps}


def _key(work: Work, dither: DitherSource) -> Array:
    """Four random numbers for this message; in simulations the same for messages of these shapes, masked or not."""
    hasher = hashlib.blake2b(work.stage.name.encode())
    for name in sorted(work.arrays):
        hasher.update(f"{name}{work.arrays[name].shape}".encode())
    return dither(hasher.digest())(4)


def _without_rows(work: Work, fixed: Source, *, by_row: bool) -> tuple[Arrays, Arrays]:
    """The stage's half at a client that answers from fixed statistics, but for halves and layers that compare rows.

    Words of ours say what it cannot answer: numpy's own warnings would tell of the rows.
    """
    with np.errstate(all="ignore"):
        data = work.data if by_row or work.stage.by_row else fixed(work.data)
        up, after = work.stage.client(work.arrays, data, work.memory)
    require_finite(up)
    return up, after


def _without_any_row(work: Work) -> tuple[Arrays, Arrays]:
    """What a site without rows adds to a masked sum: zeros, beside which nothing of it is seen.

    Under masks all clients must agree on whether they keep something. So the site keeps what the stage makes of two
    rows that it has drawn, of which it sends nothing.
    """
    if not work.masked:
        raise DataError(f"The data of {work.data.who} has no rows. Leave it out, or run with masks.")
    if work.stage.needs_rows:
        raise DataError(
            f"The data of {work.data.who} has no rows, but {option('harmonize')} compares the rows of every site. Run "
            "without this site."
        )
    parts = work.stage.parts(work.arrays, work.data.d)
    zeros = {name: np.zeros([side or 0 for side in part.shape]) for name, part in parts.items()}
    after: Arrays = {}
    if registry.owners(work.stage.name):
        drawn = LocalData(random_block(2, work.data.d, 0), who=work.data.who)
        _, after = work.stage.client(work.arrays, drawn, work.memory)
    return zeros, after


def _layers_of(says: Mapping[str, Arrays]) -> list[type[Layer]]:
    """The layers that a message names, in the order of the table."""
    unknown = [name for name in says if name not in registry.LAYERS]
    if unknown:
        raise ProtocolError(
            f"A message names the layer {shown(unknown[0])}, which this client does not know. Install the same "
            "version of flower_pca everywhere."
        )
    return [registry.LAYERS[name] for name in registry.LAYERS if name in says]


def stage_of(name: str) -> type[Stage[Any]]:
    """The stage of this name, of this package or added to it."""
    try:
        return registry.STAGES[name]
    except KeyError:
        raise ProtocolError(
            f"This flower_pca has no stage named {shown(name)}. Install the same version everywhere."
        ) from None


def local_results(stage: str, memory: Arrays, data: Any) -> Arrays:
    """What a client's memory after this stage amounts to as its own result; mostly nothing."""
    if isinstance(data, LocalData) and not data.n:
        return {}
    return registry.STAGES[stage].local_results(memory, data)
