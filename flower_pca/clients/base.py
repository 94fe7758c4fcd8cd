"""PCAClient: the node's side of every algorithm, as a Flower NumPyClient with a policy of its own."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from flwr.app import Context
from flwr.client import NumPyClient

from flower_pca import assembly, registry, wire
from flower_pca.base import archive, checks
from flower_pca.base.errors import ConfigError, DataError, FlowerPCAError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.clients.memory import FileStore, Memory, StateStore
from flower_pca.clients.policy import Policy, RefusalError, ledger
from flower_pca.core.stage import Arrays
from flower_pca.dp import noise
from flower_pca.masking import messages
from flower_pca.masking.messages import SpentError
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

if TYPE_CHECKING:
    from flower_pca.masking.identity import Identity

_SERVED: Final = (*registry.ALGORITHMS, *registry.TRACKERS)
_LOOPS: Final = ("steps", "inner_steps")  # arrays of a message that say how often a node repeats its work
_STEPS: Final = 10_000  # of these together, at most: no message keeps a node busy for good


class PCAClient(NumPyClient):
    """Answers a strategy of `flower_pca.strategies` from rows that never leave the node.

    Args:
        data: The node's rows: an array (dense, scipy sparse or memory-mapped), or a LocalData; for trackers a Stream.
        context: The node's Flower context, in which it keeps what its algorithm has to remember between rounds (FAPS
            does); without one it refuses such an algorithm.
        allow: Names of the algorithms that the node serves; all of them if left out.
        min_rows: Rows below which the node answers nothing.
        memory_dir: A folder of the node's own for its memory, instead of the context: it outlives restarts.
        output_dir: A folder of the node's own for the result that its algorithm gives the node itself, if any: the
            file flower_pca-own-KEY.npz, KEY its partition-id or node id. Nothing of it goes to the server.
            Of a Stream, a folder of that name: an npz for every step.
        share_own: Whether the node agrees to send its own components to a server that asks for them, to start from
            (personalized algorithms with init="upload" or "qu") or to compare nodes by (with collect=True), and, where
            no masks cover them, the answers that theta is measured by, which lie in their space; else these are zeros.
            It does not hide them from a server that computes: masks do.
        min_noise: The least deviation of the noise on every answer, as a multiple of the clip squared: the node then
            answers only runs with dp, and only those that ask for so much. Under masks it is that of the sum.
        max_clip: The largest norm to which a run with dp may clip its rows; the node then answers no others.
        masked_only: Whether the node answers under masks only.
        single_masks: Whether it takes part in masked sums without self-masks, if the server asks for that.
        sign_key: The node's own private key, in OpenSSH or PEM format: the file that its SuperNode has. With it the
            node signs the keys of masked sums.
        trusted_keys: A file with the public keys of the federation's nodes, in OpenSSH format, one on every line, or a
            folder of .pub files. The node then takes part in masked sums only with peers who have signed their keys
            with one of these. Not to be had from the server.
        max_messages: Messages that it answers in a run of Flower at most, those of the masks' set-up included.
        max_rank: The rank, at most, of all blocks it answers without masks while its rows stay the same, over all runs:
            after d independent columns a server knows C_i. d / 2 is a sensible choice. Needs memory_dir.

    Example:
        >>> app = ClientApp(client_fn=lambda context: PCAClient(load(context), context=context).to_client())
    """

    algorithms: ClassVar[tuple[str, ...]] = ()  # those that the class is restricted to; empty: no restriction

    def __init__(
        self,
        data: Any,
        *,
        context: Context | None = None,
        allow: Collection[str] | None = None,
        min_rows: int = 1,
        memory_dir: str | os.PathLike[str] | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        share_own: bool = False,
        min_noise: float | None = None,
        max_clip: float | None = None,
        masked_only: bool = False,
        single_masks: bool = False,
        sign_key: str | os.PathLike[str] | None = None,
        trusted_keys: str | os.PathLike[str] | None = None,
        max_messages: int | None = None,
        max_rank: int | None = None,
    ) -> None:
        checks.integer("min_rows", min_rows, least=1)
        checks.choice("share_own", share_own, (True, False))
        self._allow = self._allowed(allow)
        self._min_rows = min_rows
        self._share_own = bool(share_own)
        self._floor = noise.Floor(min_noise, max_clip)
        self._discreet = masked_only or min_noise is not None or max_clip is not None
        self._data = data
        if isinstance(data, Stream):
            data.min_rows = max(data.min_rows, min_rows)
        partition = None if context is None else context.node_config.get("partition-id")
        self._key = wire.NO_KEY if partition is None else int(partition)
        self._store: StateStore | FileStore | None = None if context is None else StateStore(context.state)
        self._own_file: Path | None = None
        path: Path | None = None
        for name, folder in (("memory_dir", memory_dir), ("output_dir", output_dir)):
            if folder is not None and context is None:
                remedy = f"Write PCAClient(data, context=context, {name}=...)."
                raise ConfigError(name, must="used with the node's context", got="no context", then=remedy)
        if context is not None:
            who = context.node_id if partition is None else int(partition)
            self._store = self._store if memory_dir is None else FileStore(memory_dir, str(who))
            path = None if memory_dir is None else ledger(memory_dir, str(who))
            self._own_file = None if output_dir is None else own_file(output_dir, who)
            if self._own_file is not None and isinstance(data, Stream):
                data.write_to(self._own_file.with_suffix(""))
        if max_rank is not None and isinstance(data, Stream):
            remedy = "Leave it out, or serve rows at rest."
            raise ConfigError("max_rank", must="used with rows that stay the same", got="a Stream", then=remedy)
        rules: dict[str, Any] = {"max_messages": max_messages, "max_rank": max_rank, "path": path}
        self._policy = Policy(context, masked_only=masked_only, single_masks=single_masks, **rules)
        self._identity = None if sign_key is None and trusted_keys is None else _identity(sign_key, trusted_keys)

    def fit(self, parameters: list[Array], config: wire.Config) -> tuple[list[Array], int, wire.Config]:
        """Answer one message of a strategy."""
        try:
            request = wire.read_request(parameters, config)
            arrays, n = self._answer(request)
        except FlowerPCAError as error:
            return [], 0, self._refuse(error, config)
        return wire.write_fit(arrays, n, request.number, self._key)

    def evaluate(self, parameters: list[Array], config: wire.Config) -> tuple[float, int, wire.Config]:
        """Answer a strategy's evaluation: the mean squared reconstruction error of the node's rows."""
        try:
            request = wire.read_request(parameters, config)
            if request.stage != wire.EVALUATE:
                rule, remedy = f"of the stage {wire.EVALUATE}", "Send it as train."
                raise ProtocolError("An evaluate message", must=rule, got=request.stage, then=remedy)
            arrays, n = self._answer(request)
        except FlowerPCAError as error:
            return 0.0, 0, self._refuse(error, config)
        return wire.write_evaluate(arrays, n, request.number, self._key)

    def get_properties(self, config: wire.Config) -> dict[str, wire.Scalar]:
        """What a server may know before a run: columns, the algorithms served, and the layout spoken."""
        data = self._rows()
        suited = registry.TRACKERS if isinstance(data, Stream) else registry.ALGORITHMS
        served = sorted(set(suited) & (self._allow if self._allow is not None else set(suited)))
        return {"n_features": data.d or 0, "algorithms": ",".join(served), "flower_pca": wire.LAYOUT}

    def _answer(self, request: wire.Request) -> tuple[Arrays, int]:
        _check(request)
        masked = request.stage == messages.STAGE
        quiet = masked or noise.asked(request.arrays)  # then not even the number of rows is told
        with _naming(request.stage, quiet=quiet):
            self._admit(request)
            self._policy.admit(request)
        data = self._rows()
        n = data.n if isinstance(data, LocalData) else -1
        _check_frame(request, data.d)
        if 0 <= n < self._min_rows:
            rule, got = f"at least {self._min_rows}", "fewer" if quiet else n
            raise RefusalError("The rows of this node", must=rule, got=got, then="Ask again when it has more.")
        before = self._remembered(request)
        rows, data = data, data.framed(request.frame) if isinstance(data, LocalData) else data
        try:
            with _naming(request.stage, quiet=quiet):
                up, after = assembly.answer(request.stage, request.arrays, data, before, identity=self._identity)
                up = up if masked else self._withheld(request, up)
                if isinstance(rows, LocalData):
                    self._policy.weigh(request, rows, up)
        except SpentError as error:
            if self._store is not None:
                self._store.save(Memory(request.run, request.number, {}, error.kept))
            raise
        if (after or before) and self._store is None:
            rule = f"given its context to serve {request.algorithm}, which has to remember"
            remedy = "Write PCAClient(data, context=context)."
            raise RefusalError("This client", must=rule, got="none", then=remedy)
        if self._store is not None and (after or before):
            self._store.save(Memory(request.run, request.number, {} if masked else before, after))
        stage = messages.inner_stage(request.arrays) if masked else request.stage  # none in the set-up of masks
        if (
            self._own_file is not None
            and stage is not None
            and (own := registry.own(stage, messages.plain(after), data))
        ):
            self._own_file.parent.mkdir(parents=True, exist_ok=True)
            archive.write(self._own_file, "own result", {"algorithm": request.algorithm, "run": request.run}, own)
        if noise.asked(request.arrays):
            n = 1  # how many rows there are is told with noise only
        if masked:
            return up, 0
        # Of a stream what counts is the batch of this step.
        return up, n if n >= 0 else int(up["rows"])

    def _remembered(self, request: wire.Request) -> Arrays:
        memory = Memory() if self._store is None else self._store.load()
        if noise.asked(request.arrays):  # what has been told is told, whichever message comes again
            return dict(memory.after or {}) if memory.run == request.run else {}
        if request.stage == messages.STAGE:
            return memory.newest(request.run)
        return memory.at(request.run, request.number)

    def _withheld(self, request: wire.Request, up: Arrays) -> Arrays:
        """The answer without what shows the node's own results, unless it agrees to that. No sum covers this answer."""
        if self._share_own:
            return up
        parts, kept = registry.STAGES[request.stage].parts(request.arrays, self._rows().d or None), dict(up)
        for name, a in up.items():
            if parts[name].own:
                kept[name] = a[:, :0] if parts[name].open else np.zeros_like(a)
        return kept

    def _admit(self, request: wire.Request) -> None:
        masked = request.stage == messages.STAGE
        inner = messages.inner_stage(request.arrays) if masked else None  # none in the set-up, which tells of no row
        stage, arrays = inner or request.stage, messages.plain(request.arrays)
        owners = registry.owners(stage)
        asked = {request.algorithm, *(() if request.algorithm in owners else owners)}
        if inner is not None and _bare(stage, arrays):
            rule, got = "a sum that shows nothing of a node's own results", stage
            raise RefusalError("What is asked for under masks", must=rule, got=got, then="Check the sender.")
        if self._allow is not None and not asked <= self._allow:
            rule = f"one of those that this node serves ({', '.join(sorted(self._allow))})"
            got = ", ".join(sorted(asked - self._allow))
            raise RefusalError("The algorithm", must=rule, got=got, then="Ask the node's operator.")
        tells = inner is not None or not masked
        if tells and (refusal := self._floor.refusal(request.arrays)) is not None:
            raise RefusalError(refusal)

    def _rows(self) -> LocalData | Stream:
        if not isinstance(self._data, LocalData | Stream):
            self._data = LocalData(self._data, who="this node", missing=True)  # whether NaN may be says the message
        return self._data

    def _refuse(self, error: FlowerPCAError, config: wire.Config) -> wire.Config:
        return refusal(error, config, self._key, discreet=self._discreet)

    @classmethod
    def _allowed(cls, allow: Collection[str] | None) -> frozenset[str] | None:
        own = frozenset(cls.algorithms) or None
        if allow is None:
            return own
        if isinstance(allow, str):
            allow = [allow]
        for name in allow:
            if name not in _SERVED:
                remedy = checks.did_you_mean(name, _SERVED)
                known = ", ".join(_SERVED)
                raise ConfigError("Every algorithm in allow", must=f"one of {known}", got=repr(name), then=remedy)
        return frozenset(allow) if own is None else own & frozenset(allow)


def _bare(stage: str, arrays: Arrays) -> bool:
    """Whether an answer can be no sum: of a stage that is not known, or with a node's own results of their own size."""
    if stage not in registry.STAGES:
        return True
    parts = registry.STAGES[stage].parts(arrays, 1)  # which sides are open is the same for all numbers of columns
    return any(part.own and part.open for part in parts.values())


def _identity(sign_key: str | os.PathLike[str] | None, trusted_keys: str | os.PathLike[str] | None) -> Identity:
    from flower_pca.masking.identity import Identity  # with cryptography, which no other client needs

    return Identity.load(sign_key, trusted_keys)


def own_file(folder: str | os.PathLike[str], key: int) -> Path:
    """Where the node with this partition-id (or node id, if it has none) leaves its own result: an npz."""
    return Path(folder).expanduser() / f"flower_pca-own-{key}.npz"


def refusal(error: FlowerPCAError, config: wire.Config, key: int, *, discreet: bool) -> wire.Config:
    """What the server is told of an error.

    Under masks, under noise, and always at a node that is `discreet`, it is not told what was found in the rows.
    """
    text, number = str(error), config.get("number")
    quiet = config.get("stage") == messages.STAGE or noise.asked(str(config.get("names", "")).split(","))
    if isinstance(error, DataError) and (discreet or quiet):
        rule, _, got = text.partition(" Got ")
        text = f"{rule} {got.partition('. ')[2]}"
    return wire.refusal(text, number if isinstance(number, int) else -1, key)


@contextmanager
def _naming(stage: str, *, quiet: bool) -> Iterator[None]:
    """Turn what a malformed message makes of Python into a refusal; if `quiet`, without words that may tell of rows."""
    try:
        yield
    except FlowerPCAError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, UnboundLocalError) as error:
        kind = type(error).__name__
        got = f"one that fails here ({kind})" if quiet else f"one that fails here ({kind}: {error})"
        rule = f"one that the stage {stage} of this version can work on"
        remedy = "Install the same flower_pca everywhere."
        raise ProtocolError("A message", must=rule, got=got, then=remedy) from error


def _framed(request: wire.Request) -> Arrays:
    frame = request.frame
    parts = (("mean", frame.mean), ("scale", frame.scale), ("fill", frame.fill))
    return {name: a for name, a in parts if a is not None}


def _check(request: wire.Request) -> None:
    """Refuse arrays that no strategy of ours sends."""
    remedy = "Check the sender."
    for name, a in {**request.arrays, **_framed(request)}.items():
        if a.dtype.kind not in "fiub" or not np.isfinite(a).all():
            got = f"dtype {a.dtype}" if a.dtype.kind not in "fiub" else "NaN or infinite entries"
            raise ProtocolError(f"{name} of a message", must="real and finite", got=got, then=remedy)
    for name, a in messages.plain(request.arrays).items():
        if a.ndim > 2:  # products take stacks of blocks too, which no rule of the node has in view
            rule = "a number, a vector or a matrix"
            raise ProtocolError(f"{name} of a message", must=rule, got=f"{a.ndim} dimensions", then=remedy)
    steps = math.prod(max(1.0, float(np.max(request.arrays[n], initial=1))) for n in _LOOPS if n in request.arrays)
    if steps > _STEPS:
        what = f"{' times '.join(n for n in _LOOPS if n in request.arrays)} of a message"
        raise ProtocolError(what, must=f"at most {_STEPS}", got=f"{steps:g}", then="Ask for fewer steps.")


def _check_frame(request: wire.Request, d: int | None) -> None:
    """Refuse a frame that no strategy of ours sends: it could single out rows, which no answer may do."""
    framed, remedy = _framed(request), "Check the sender."
    for name, a in framed.items():
        if a.shape != (d,) or a.dtype.kind != "f":
            got = f"shape {a.shape} and dtype {a.dtype}"
            raise ProtocolError(f"The {name} of a message", must=f"{d} numbers", got=got, then=remedy)
    if "scale" in framed and not (framed["scale"] > 0.0).all():
        raise ProtocolError("The scale of a message", must="above 0", got="others", then=remedy)
