"""client_app() and register(): PCA in a ClientApp of Flower's message API, alone or beside the user's own functions."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from flower_pca import wire
from flower_pca.base.errors import FlowerPCAError
from flower_pca.clients.base import PCAClient, refusal
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream

Load: TypeAlias = Callable[[Context], Any]

DEFAULT: Final = "default"  # Flower's name of the functions that plain train and evaluate messages go to
_CACHED: Final = 8  # nodes of one process whose rows are kept ready


def client_app(
    load: Load,
    *,
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
) -> ClientApp:
    """A ClientApp that serves PCA.

    Args:
        load: From the node's context to its rows: an array, a scipy sparse array, a memory-mapped one, or a `Stream`
            of rows with gaps for trackers. Called once per run, node and process.
        allow: Names of the algorithms that the node serves; all of them if left out.
        min_rows: Rows below which the node answers nothing.
        memory_dir: A folder of the node's own for what it has to remember between rounds.
        output_dir: A folder of the node's own for its own results; see `PCAClient`.
        share_own: Whether nodes agree to send their own components; see `PCAClient`.
        min_noise: The least noise on every answer, in multiples of the clip squared; see `PCAClient`.
        max_clip: The largest norm to which a run may clip the rows.
        masked_only: Whether nodes answer under masks only.
        single_masks: Whether nodes take part in masked sums without self-masks.
        sign_key: The private key with which the node signs its keys of masked sums; see `PCAClient`.
        trusted_keys: The public keys of the nodes with which it takes part in masked sums; see `PCAClient`.
        max_messages: Messages that a node answers in a run of Flower.
        max_rank: Rank of the blocks that a node answers without masks, over all runs; needs memory_dir.
    """
    app = ClientApp()
    rules: dict[str, Any] = {"min_rows": min_rows, "min_noise": min_noise, "max_clip": max_clip}
    rules |= {"masked_only": masked_only, "max_messages": max_messages, "max_rank": max_rank}
    rules |= {"single_masks": single_masks, "sign_key": sign_key, "trusted_keys": trusted_keys}
    folders: dict[str, Any] = {"memory_dir": memory_dir, "output_dir": output_dir}
    register(app, load, action=DEFAULT, allow=allow, share_own=share_own, **rules, **folders)
    return app


def register(
    app: ClientApp,
    load: Load,
    *,
    action: str = "pca",
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
    """Add PCA to a ClientApp, as actions beside its own: "train.pca", "evaluate.pca", "query.pca".

    The strategy takes the same `action`.

    Args:
        app: The ClientApp, of the message API (without client_fn).
        load: From the node's context to its rows. Called once per run, node and process, which keeps the
            rows of the eight nodes that it served last.
        action: Flower's name of the functions.
        allow: Names of the algorithms that the node serves; all of them if left out.
        min_rows: Rows below which the node answers nothing.
        memory_dir: A folder of the node's own for what it has to remember between rounds.
        output_dir: A folder of the node's own for its own results; see `PCAClient`.
        share_own: Whether nodes agree to send their own components; see `PCAClient`.
        min_noise: The least noise on every answer, in multiples of the clip squared; see `PCAClient`.
        max_clip: The largest norm to which a run may clip the rows.
        masked_only: Whether nodes answer under masks only.
        single_masks: Whether nodes take part in masked sums without self-masks.
        sign_key: The private key with which the node signs its keys of masked sums; see `PCAClient`.
        trusted_keys: The public keys of the nodes with which it takes part in masked sums; see `PCAClient`.
        max_messages: Messages that a node answers in a run of Flower.
        max_rank: Rank of the blocks that a node answers without masks, over all runs; needs memory_dir.
    """
    rules: dict[str, Any] = {
        "allow": allow, "min_rows": min_rows, "memory_dir": memory_dir, "output_dir": output_dir,
        "share_own": share_own, "min_noise": min_noise, "max_clip": max_clip, "masked_only": masked_only,
        "single_masks": single_masks, "sign_key": sign_key, "trusted_keys": trusted_keys,
        "max_messages": max_messages, "max_rank": max_rank,
    }  # fmt: skip
    discreet = masked_only or min_noise is not None or max_clip is not None
    cache: OrderedDict[object, LocalData | Stream] = OrderedDict()

    def client(context: Context) -> PCAClient:
        key = (context.run_id, context.node_id, context.node_config.get("partition-id"))
        if key not in cache:
            rows = load(context)
            kept = isinstance(rows, LocalData | Stream)
            cache[key] = rows if kept else LocalData(rows, who="this node", missing=True)
            if len(cache) > _CACHED:
                cache.popitem(last=False)
        cache.move_to_end(key)
        return PCAClient(cache[key], context=context, **rules)

    def serve(message: Message, context: Context, kind: str) -> Message:
        first: Any = 0.0 if kind == wire.EVALUATE else []
        config: wire.Config = {"number": 0}
        try:
            parameters, config = wire.open_request(message.content, kind)
            served = client(context)
        except FlowerPCAError as error:  # the rows cannot be used: the server is told which node, and why
            n, metrics = 0, refusal(error, config, _key(context), discreet=discreet)
        else:
            first, n, metrics = (served.evaluate if kind == wire.EVALUATE else served.fit)(parameters, config)
        return Message(wire.write_reply(kind, first, n, metrics), reply_to=message)

    @app.train(action)
    def train(message: Message, context: Context) -> Message:
        return serve(message, context, "train")

    @app.evaluate(action)
    def evaluate(message: Message, context: Context) -> Message:
        return serve(message, context, wire.EVALUATE)

    @app.query(action)
    def query(message: Message, context: Context) -> Message:
        properties = ConfigRecord(dict(client(context).get_properties({})))
        return Message(RecordDict({"getpropertiesres.properties": properties}), reply_to=message)


def _key(context: Context) -> int:
    return int(context.node_config.get("partition-id", wire.NO_KEY))
