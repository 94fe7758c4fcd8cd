"""A node's own rules, which hold whatever a server asks: what it has refused, no message can get."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
from flwr.app import ConfigRecord, Context

from flower_pca import registry, wire
from flower_pca.base import archive, checks, linalg
from flower_pca.base.errors import ConfigError, FlowerPCAError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.parts import TELLING
from flower_pca.core.stage import Arrays
from flower_pca.masking import messages
from flower_pca.rows.local import LocalData
from flower_pca.stages.opening import drawn

_ANSWERED: Final = "flower_pca.answered"
# Of its length: what a column must have outside the known ones to be a new one. A block that comes again, rotated or
# orthonormalised anew, is off by a few roundings of double precision, 1e-16 each; what is off by more tells more, as
# answers are exact to a few roundings too. That rows may be float32 does not matter: blocks are not.
_NEW: Final = 1e-14
_FILE: Final = "blocks answered"


class RefusalError(FlowerPCAError):
    """The node's own rules forbid the answer."""


class Policy:
    """How much a node tells: in masks only, so many messages in a run, blocks up to a rank.

    Args:
        context: The node's Flower context, which counts the messages of a run.
        masked_only: Whether the node answers under masks only.
        single_masks: Whether it takes part in masked sums without self-masks.
        max_messages: Messages that it answers in a run of Flower at most, those of masks' set-up included.
        max_rank: The rank, at most, of all blocks answered without masks since the rows last changed. From answers to d
            independent columns C_i follows exactly; d / 2 is a sensible choice.
        path: The node's own file in which it remembers these blocks from run to run.
    """

    def __init__(
        self,
        context: Context | None,
        *,
        masked_only: bool = False,
        single_masks: bool = False,
        max_messages: int | None = None,
        max_rank: int | None = None,
        path: Path | None = None,
    ) -> None:
        checks.choice("masked_only", masked_only, (True, False))
        checks.choice("single_masks", single_masks, (True, False))
        if max_messages is not None:
            checks.integer("max_messages", max_messages, least=1)
            if context is None:
                remedy = "Write PCAClient(data, context=context, max_messages=...)."
                raise ConfigError("max_messages", must="used with the node's context", got="no context", then=remedy)
        if max_rank is not None:
            checks.integer("max_rank", max_rank, least=1)
            if path is None:
                remedy = "Give memory_dir, a folder of the node's own: the count has to outlive a run."
                raise ConfigError("max_rank", must="used with memory_dir", got="none", then=remedy)
        self._context, self._path = context, path
        self._masked_only, self._most, self._rank = bool(masked_only), max_messages, max_rank
        self._single_masks = bool(single_masks)

    def admit(self, request: wire.Request) -> None:
        """Refuse a message for what it is; count it."""
        if self._masked_only and request.stage != messages.STAGE:
            remedy = "Run the strategy with mask=True."
            got = "one without masks"
            raise RefusalError("A message to this node", must="masked: masked_only is set", got=got, then=remedy)
        if request.stage == messages.STAGE and messages.single(request.arrays) and not self._single_masks:
            rule = "with self-masks: single_masks is not set"
            remedy = "Leave self_masks=False out, or ask the node's operator."
            raise RefusalError("A set-up of masks at this node", must=rule, got="one without", then=remedy)
        if self._most is not None and self._context is not None:
            records = self._context.state.config_records
            answered = int(records[_ANSWERED]["messages"]) if _ANSWERED in records else 0  # type: ignore[arg-type]
            if answered >= self._most:
                rule = f"at most {self._most}: that is its max_messages"
                remedy = "Ask the node's operator, or for an algorithm of fewer rounds."
                raise RefusalError("The messages to this node in a run", must=rule, got="one more", then=remedy)
            records[_ANSWERED] = ConfigRecord({"messages": answered + 1})

    def weigh(self, request: wire.Request, data: LocalData, up: Arrays) -> None:
        """Refuse an answer without masks that would tell products with more columns than the node allows."""
        if self._rank is None or self._path is None or request.stage == messages.STAGE:
            return
        mark = [data.n, data.d, data.fingerprint()]
        known = self._known(self._path, mark, data.d)
        new = linalg.independent(linalg.complement(_columns(request, data.d, up), known), _NEW)
        told = np.hstack([known, linalg.orth(linalg.complement(new, known))])  # short ones are known roughly
        if told.shape[1] > self._rank:
            rule = f"at most {self._rank}: that is its max_rank"
            remedy = "Run the strategy with mask=True, or ask the node's operator."
            what = "The rank of all blocks that this node has answered"
            raise RefusalError(what, must=rule, got=f"{told.shape[1]} with this message", then=remedy)
        if told.shape[1] > known.shape[1]:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            archive.write(self._path, _FILE, {"rows": mark}, {"told": told}, private=True)

    @staticmethod
    def _known(path: Path, mark: list[int], d: int) -> Array:
        """An orthonormal basis of what was asked of these very rows before."""
        try:
            header, arrays = archive.read(path, _FILE)
        except FileNotFoundError:
            return np.empty((d, 0))
        except ProtocolError as error:  # to take it for none would forget what has been told
            rule, got = "one that this node has written", "another"
            remedy = "Its operator has to look at it, or to remove it."
            raise RefusalError(f"{path.name} of this node", must=rule, got=got, then=remedy) from error
        return arrays["told"] if header["rows"] == mark else np.empty((d, 0))


def ledger(folder: str | os.PathLike[str], key: str) -> Path:
    """Where the node with this key keeps which blocks it has answered."""
    return Path(folder).expanduser() / f"flower_pca-told-{key}.npz"


def _columns(request: wire.Request, d: int, up: Arrays) -> Array:
    """The columns whose products with C_i an answer tells, in the rows' own units and of length one.

    Those of the blocks in the message, whatever they are for, and directions of C_i that the answer itself brings.
    """
    blocks = [a.reshape(d, -1) for a in request.arrays.values() if a.ndim and len(a) == d]
    if "seed" in request.arrays and "width" in request.arrays:
        blocks.append(drawn(d, int(request.arrays["width"]), int(request.arrays["seed"])))
    parts = registry.STAGES[request.stage].parts(request.arrays, d)
    told = [a for name, a in up.items() if parts[name].kind in TELLING]
    blocks += [a if a.ndim == 2 and len(a) == d else np.eye(d) for a in told]
    columns = _units(np.hstack([np.empty((d, 0)), *blocks]).astype(np.float64))
    return columns if request.frame.scale is None else _units(columns / request.frame.scale[:, None])


def _units(columns: Array) -> Array:
    """Columns of length one, without those of zeros. The largest entry goes first: squares of small ones are none."""
    largest = np.abs(columns).max(axis=0)
    columns = columns[:, largest > 0.0] / largest[largest > 0.0]
    return np.asarray(columns / linalg.column_norms(columns))
