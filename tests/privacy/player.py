"""A dishonest server: it asks real nodes over real records whatever it likes, and plays the server's half of masks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from fake_grid import in_a_run  # noqa: F401 - Flower's imports, with what they warn of taken care of
from flwr.app import Context, RecordDict

from flower_pca import MaskedSums, wire
from flower_pca.clients import PCAClient
from flower_pca.core.stage import Broadcast
from flower_pca.masking import fixed, messages
from flower_pca.masking.group import Group, identity
from flower_pca.masking.messages import Phase, raw
from flower_pca.rows.frame import Frame

_numbers = itertools.count(1)


class RefusedError(Exception):
    """A node has answered with a refusal."""


class Node:
    """A real PCAClient under the rules that its operator has set."""

    def __init__(self, key: int, X: Any, **rules: Any) -> None:
        self.client = PCAClient(X, context=Context(1, 100 + key, {"partition-id": key}, RecordDict(), {}), **rules)

    def ask(self, stage, arrays, frame=None, *, run="r", number=None, algorithm=None):
        number = next(_numbers) if number is None else number
        given = Broadcast(stage, number, {n: np.asarray(a) for n, a in arrays.items()}, frame or Frame(), (1,))
        record = wire.write_request(given, 1, algorithm=algorithm or stage, run=run, extra={})
        kind = wire.kind(stage)
        parameters, config = wire.open_request(record, kind)
        if kind == "evaluate":
            _, _, metrics = self.client.evaluate(parameters, config)
            answer = metrics
        else:
            arrays_up, _, metrics = self.client.fit(parameters, config)
            answer = dict(zip(metrics.get("names", "").split(","), arrays_up, strict=False))
        if "refusal" in metrics:
            raise RefusedError(metrics["refusal"])
        return answer


class Masked:
    """A set-up of masks over nodes, driven as the server likes: one sum after another."""

    def __init__(self, nodes, *, run, algorithm="ssi", masks=None):
        self.nodes, self.run, self.algorithm, self.setup = nodes, run, algorithm, identity()
        keys = self._all({"mask.step": int(Phase.KEYS), "mask.single": False})
        self.group = Group(masks or MaskedSums(), self.setup.tobytes(), len(nodes), keys)
        shares = {i: {"mask.step": int(Phase.SHARES), **self.group.shares_message(i)} for i in range(len(nodes))}
        self.group.take_shares({i: self._send(i, shares[i]) for i in shares})

    def sum(self, stage, arrays, shapes, bounds, frame=None):
        """The decoded sum of what all nodes answer to the same question."""
        group, nodes = self.group, range(len(self.nodes))
        group.begin(nodes)
        bounds = {name: np.asarray(bound, dtype=np.float64) for name, bound in bounds.items()}
        common = {
            **{name: np.asarray(a) for name, a in arrays.items()},
            "mask.stage": raw(stage.encode()), "mask.clients": np.array(len(nodes)),
            "mask.number": np.array(group.number), **{messages.BOUND + n: b for n, b in bounds.items()},
        }  # fmt: skip
        step = {"mask.step": int(Phase.UPLOAD), **common}
        group.take_uploads({i: self._send(i, {**step, **group.upload_message(i)}, frame) for i in nodes})
        step = {"mask.step": int(Phase.UNMASK), "mask.number": np.array(group.number)}
        total = group.total({i: self._send(i, {**step, **group.unmask_message(i)}) for i in nodes})
        group.end()
        return fixed.decode(total, shapes, bounds, len(nodes))

    def _all(self, arrays):
        return {i: self._send(i, arrays) for i in range(len(self.nodes))}

    def _send(self, i, arrays, frame=None):
        given = {"mask.setup": self.setup, **arrays}
        return self.nodes[i].ask(messages.STAGE, given, frame, run=self.run, algorithm=self.algorithm)
