"""Compute a client's answer to a message, with or without masks, and the memory that the client keeps.

The layers that a message names process the message before the stage does, in the order of the registry's table. They
process the stage's answer in the reverse order. A layer that the message does not name is not imported.
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
from flower_pca.core.layer import NOBODY, ClientIdentity, Layer, Sayings, Work
from flower_pca.core.stage import KEY, Arrays, Stage
from flower_pca.layers import NOISE
from flower_pca.masking import messages
from flower_pca.masking.dither import DitherSource, system_dither
from flower_pca.masking.messages import SumConditions
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

if TYPE_CHECKING:
    from flower_pca.rows.fixed import FixedData

Source: TypeAlias = "Callable[[LocalData], FixedData]"  # a function that returns the fixed statistics of rows


def answer(
    stage: str,
    arrays: Arrays,
    data: Any,
    memory: Arrays,
    *,
    layers: Sayings | None = None,
    bits: Bits = system_bits,
    demands: SumConditions | None = None,
    fixed: Source | None = None,
    dither: DitherSource = system_dither,
    who: ClientIdentity = NOBODY,
) -> tuple[Arrays, Arrays]:
    """Return a client's answer to a message, and the memory that the client keeps.

    Parameters
    ----------
    stage : str
        The stage of the message.
    arrays : Arrays
        The arrays of the message.
    data
        The client's rows, in the message's frame.
    memory : Arrays
        The memory that the client has kept.
    layers : Sayings or None, default=None
        The arrays of the message's layers.
    bits : Bits
        The source of random bits for the noise of answers.
    demands : SumConditions or None, default=None
        Under masks, the conditions under which the client takes part in a sum.
    fixed : Source or None, default=None
        A function that returns the fixed statistics of rows. Stages that do not compare rows then get these statistics
        in place of the rows.
    dither : DitherSource
        A function that takes a digest and returns a source of random bits. The bits are used for the noise that hides
        rounding to fixed point under masks, and for the keys of stages that draw random numbers.
    who : ClientIdentity, default=ClientIdentity(position=-1, name='')
        The client's position and name, for messages with a different number for each client.
    """
    says = layers or {}
    if stage != messages.STAGE:
        # After a message without masks, the client drops its secrets of a masked set-up.
        if memory:
            memory = messages.stage_arrays(memory)
        return _answer(Work(stage_of(stage), arrays, data, memory, who, bits), says, fixed, dither)
    # The import is here because the module needs the package cryptography, which runs without masks do not need.
    from flower_pca.masking import client

    terms = demands or SumConditions()

    def masked_half(stage: str, arrays: Arrays, data: Any, memory: Arrays, /, *, summed: int) -> tuple[Arrays, Arrays]:
        work = Work(stage_of(stage), arrays, data, memory, who, bits, summed, masked=True, trusts=terms.shares)
        return _answer(work, says, fixed, dither)

    return client.protocol_answer(arrays, says, data, memory, masked_half, terms, dither)


def _answer(work: Work, says: Sayings, fixed: Source | None, dither: DitherSource) -> tuple[Arrays, Arrays]:
    """Return the answer to a message of a stage, and the memory that the client keeps."""
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
        work = replace(work, memory={**work.memory, KEY: _random_key(work, dither)})
    for layer in on:
        work = layer.read_message(says[layer.name], work)
    if isinstance(work.data, LocalData) and not work.data.n and NOISE not in says:
        up, after = _answer_without_rows(work)
    elif fixed is None:
        up, after = work.stage.client(work.arrays, work.data, work.memory)
    else:
        up, after = _answer_from_statistics(work, fixed, by_row=any(layer.by_row for layer in on))
    if work.stage.draws:
        # Every message has its own key. A stage that needs this key later keeps a copy under another name.
        after = {name: a for name, a in after.items() if name != KEY}
    for layer in reversed(on):
        up = layer.seal_answer(says[layer.name], work, up)
    return up, {**after, **work.keeps}


def _random_key(work: Work, dither: DitherSource) -> Array:
    """Return four random numbers, from which a stage that draws random numbers can start.

    With a seeded `dither`, as in simulations, they depend only on the stage and the shapes of the message's arrays.
    They are therefore the same with and without masks.
    """
    hasher = hashlib.blake2b(work.stage.name.encode())
    for name in sorted(work.arrays):
        hasher.update(f"{name}{work.arrays[name].shape}".encode())
    return dither(hasher.digest())(4)


def _answer_from_statistics(work: Work, fixed: Source, *, by_row: bool) -> tuple[Arrays, Arrays]:
    """Return the stage's answer and memory at a client that answers from fixed statistics.

    Stages and layers that compare rows still get the rows. Warnings of numpy are off, because they would reveal
    something about the rows. Non-finite answers are refused with an error of this package instead.
    """
    with np.errstate(all="ignore"):
        data = work.data if by_row or work.stage.by_row else fixed(work.data)
        up, after = work.stage.client(work.arrays, data, work.memory)
    require_finite(up)
    return up, after


def _answer_without_rows(work: Work) -> tuple[Arrays, Arrays]:
    """Return zeros as the answer of a site without rows to a masked sum, and the memory that the site keeps.

    Under masks, all clients must agree on whether they keep a memory. Therefore, the site keeps the memory that the
    stage makes from two random rows, and sends nothing about them.
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
    if registry.algorithms_of_stage(work.stage.name):
        drawn = LocalData(random_block(2, work.data.d, 0), who=work.data.who)
        _, after = work.stage.client(work.arrays, drawn, work.memory)
    return zeros, after


def _layers_of(says: Mapping[str, Arrays]) -> list[type[Layer]]:
    """Return the layers that a message names, in the order of the registry's table."""
    unknown = [name for name in says if name not in registry.LAYERS]
    if unknown:
        raise ProtocolError(
            f"A message asks for {shown(unknown[0])}, which this version of flower_pca does not support. Install the "
            "same version of flower_pca everywhere."
        )
    return [registry.LAYERS[name] for name in registry.LAYERS if name in says]


def stage_of(name: str) -> type[Stage[Any]]:
    """Return the stage with this name, whether it belongs to this package or was registered."""
    try:
        return registry.STAGES[name]
    except KeyError:
        raise ProtocolError(
            f"This version of flower_pca has no stage named {shown(name)}. Install the same version everywhere."
        ) from None


def local_results(stage: str, memory: Arrays, data: Any) -> Arrays:
    """Return the arrays of the client's own result, computed from its memory after a stage, or an empty dict.

    Most stages have no such result.
    """
    if isinstance(data, LocalData) and not data.n:
        return {}
    return registry.STAGES[stage].local_results(memory, data)
