"""Policy: holds a node to its rules, whatever a server asks. What it has refused, no message can get."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from flwr.app import ConfigRecord, Context

from flower_pca import registry, wire
from flower_pca.base import archive, linalg
from flower_pca.base.errors import ConfigError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.clients.refusals import RefusalError
from flower_pca.clients.rules import Rules, everything
from flower_pca.core.parts import TELLING
from flower_pca.core.stage import Arrays
from flower_pca.dp import noise
from flower_pca.masking import messages
from flower_pca.rows.local import LocalData
from flower_pca.stages.opening import drawn

_ANSWERED: Final = "flower_pca.answered"
# Of its length: what a column must have outside the known ones to be a new one. A block that comes again, rotated or
# orthonormalised anew, is off by a few roundings of double precision, 1e-16 each; what is off by more tells more, as
# answers are exact to a few roundings too. That rows may be float32 does not matter: blocks are not.
_NEW: Final = 1e-14
_FILE: Final = "blocks answered"
_LOUDEST: Final = 256.0  # of a run's budget in a node's eyes: epsilon of about 200


class Policy:
    """Holds a node to its rules: which algorithms, in masks only, so much noise, so many messages, up to what rank.

    Args:
        rules: The node's rules.
        served: The algorithms that it serves under them.
        context: Its Flower context, which counts the messages of a run.
        path: Its own file in which it remembers from run to run which blocks it has answered.
    """

    def __init__(
        self, rules: Rules, *, served: frozenset[str], context: Context | None = None, path: Path | None = None
    ) -> None:
        if rules.max_messages is not None and context is None:
            remedy = "Write PCAClient(data, context=context, max_messages=...)."
            raise ConfigError("max_messages", must="used with the node's context", got="no context", then=remedy)
        self._rules, self._served, self._context, self._path = rules, served, context, path

    def admit(self, request: wire.Request) -> None:
        """Refuse a message for what it is; count it."""
        self._check_algorithm(request)
        self._check_noise(request)
        self._check_masks(request)
        self._count()

    def _check_algorithm(self, request: wire.Request) -> None:
        """The algorithm that the message names, and those that its stage belongs to, must be served."""
        inner = messages.inner_stage(request.arrays) if request.stage == messages.STAGE else None
        stage = inner or request.stage
        owners = registry.owners(stage)
        asked = {request.algorithm, *(() if request.algorithm in owners else owners)}
        if inner is not None and _bare(stage, messages.plain(request.arrays)):
            rule, got = "a sum that shows nothing of a node's own results", stage
            raise RefusalError("What is asked for under masks", must=rule, got=got, then="Check the sender.")
        unnamed = sorted(name for name in asked - self._served if name in everything() and registry.STAGES[name].by_row)
        if unnamed and self._rules.allow is None:
            rule = "one whose answers compare no rows, or one that this node's operator has named"
            raise RefusalError("The algorithm", must=rule, got=", ".join(unnamed), then="Ask the node's operator.")
        if not asked <= self._served:
            rule = f"one of those that this node serves ({', '.join(sorted(self._served))})"
            got = ", ".join(sorted(asked - self._served))
            raise RefusalError("The algorithm", must=rule, got=got, then="Ask the node's operator.")

    def _check_noise(self, request: wire.Request) -> None:
        """As much noise as the node insists on; but in a set-up of masks, which tells of no row."""
        tells = request.stage != messages.STAGE or messages.inner_stage(request.arrays) is not None
        if tells and (why := self._rules.floor.refusal(request.arrays)) is not None:
            raise RefusalError(why)
        # Under noise rows are clipped, and compared so: with next to none, answers would tell single rows.
        loud = self._rules.answers != "rows" and noise.asked(request.arrays)
        if tells and loud and (budget := noise.asked_budget(request.arrays)) > _LOUDEST:
            rule, remedy = f"at most {_LOUDEST:g}, a sum of (clip^2 / noise)^2", "Run with a smaller epsilon."
            raise RefusalError("The budget of a run with noise at this node", must=rule, got=f"{budget:g}", then=remedy)

    def _check_masks(self, request: wire.Request) -> None:
        masked = request.stage == messages.STAGE
        if self._rules.masked_only and not masked:
            remedy = "Run the strategy with mask=True."
            got = "one without masks"
            raise RefusalError("A message to this node", must="masked: masked_only is set", got=got, then=remedy)
        if masked and messages.single(request.arrays) and not self._rules.single_masks:
            rule = "with self-masks: single_masks is not set"
            remedy = "Leave self_masks=False out, or ask the node's operator."
            raise RefusalError("A set-up of masks at this node", must=rule, got="one without", then=remedy)

    def _count(self) -> None:
        """Count a message of this run, if there is room for one more."""
        most = self._rules.max_messages
        if most is None or self._context is None:
            return
        records = self._context.state.config_records
        answered = int(records[_ANSWERED]["messages"]) if _ANSWERED in records else 0  # type: ignore[arg-type]
        if answered >= most:
            rule = f"at most {most}: that is its max_messages"
            remedy = "Ask the node's operator, or for an algorithm of fewer rounds."
            raise RefusalError("The messages to this node in a run", must=rule, got="one more", then=remedy)
        records[_ANSWERED] = ConfigRecord({"messages": answered + 1})

    def check_gaps(self, request: wire.Request, data: LocalData) -> None:
        """What a server lets stand for missing values tells of the rows with gaps: only as the node's rule has it."""
        chosen = request.frame.fill is not None or "gaps" in request.arrays
        if not data.missing or request.frame.own or not chosen:
            return
        remedy = 'Run with missing="own_mean", or ask the node\'s operator.'
        if self._rules.missing != "mean":
            rule = "filled with its own means: that is its rule"
            raise RefusalError("The missing values of this node", must=rule, got='missing="mean"', then=remedy)
        gaps = data.n - np.asarray(data.there().seen)
        if np.any((gaps > 0) & (gaps < self._rules.min_rows)):
            rule = f"at least {self._rules.min_rows}, its min_rows, to be filled with means of others"
            raise RefusalError("The gaps in a column of this node", must=rule, got="fewer", then=remedy)

    def weigh(self, request: wire.Request, data: LocalData, up: Arrays) -> None:
        """Refuse an answer without masks that would tell products with more columns than the node allows."""
        most = self._rules.max_rank
        if most is None or self._path is None or request.stage == messages.STAGE:
            return
        mark = [data.n, data.d, data.fingerprint()]
        known = self._known(self._path, mark, data.d)
        new = linalg.independent(linalg.complement(_columns(request, data.d, up), known), _NEW)
        told = np.hstack([known, linalg.orth(linalg.complement(new, known))])  # short ones are known roughly
        if told.shape[1] > most:
            rule = f"at most {most}: that is its max_rank"
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


def _bare(stage: str, arrays: Arrays) -> bool:
    """Whether an answer can be no sum: of a stage that is not known, or with a node's own results of their own size."""
    if stage not in registry.STAGES:
        return True
    parts = registry.STAGES[stage].parts(arrays, 1)  # which sides are open is the same for all numbers of columns
    return any(part.own and part.open for part in parts.values())
