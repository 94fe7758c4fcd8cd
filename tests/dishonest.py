"""A dishonest server: it asks real clients, over real records, what it likes, and plays the server of masks itself."""

import functools
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
from fake_grid import Context  # imports Flower and suppresses its warnings
from flwr.app import RecordDict

from flower_pca import MaskedSums, Stream, assembly, keys, registry, wire
from flower_pca.clients import PCAClient
from flower_pca.core.stage import Broadcast
from flower_pca.masking import fixed, messages
from flower_pca.masking.group import MaskingGroup, new_setup_id
from flower_pca.masking.messages import Phase, bytes_as_array
from flower_pca.rows.frame import Frame
from flower_pca.simulation.backend import InProcessTransport

NUMBERS = itertools.count()  # of messages
ARRIVED = np.random.default_rng(0).standard_normal((60, 6))


class RefusedError(Exception):
    """What a node has said instead of an answer."""


class Node:
    """A PCAClient as an operator sets it up, and how it is asked."""

    def __init__(self, key, X, **rules):
        self.key, self.X, self.rules, self.asked = key, X, rules, 0
        self.start()

    def start(self):
        """A new run of Flower: the context of the last one is gone."""
        self.context = Context(1, 100 + self.key, {"partition-id": self.key}, RecordDict(), {})
        self.client = PCAClient(self.X, context=self.context, **self.rules)

    def ask(self, stage, arrays, frame=None, *, run="r", number=None, algorithm=None, layers=None):
        """The answer by name; of an evaluation, its metrics."""
        self.asked += 1
        number = next(NUMBERS) if number is None else number
        asked = request(stage, arrays, frame, run, number, algorithm, layers)
        if wire.message_kind(stage) == wire.EVALUATE:
            _, _, metrics = self.client.evaluate(*asked)
            answer = metrics
        else:
            said, n, metrics = self.client.fit(*asked)
            assert "refusal" not in metrics or (said, n) == ([], 0)
            names = filter(None, metrics.get("names", "").split(","))  # an answer may have no arrays
            answer = {} if "refusal" in metrics else dict(zip(names, said, strict=True))
        if "refusal" in metrics:
            raise RefusedError(metrics["refusal"])
        return answer


def request(stage, arrays, frame=None, run="r", number=0, algorithm=None, layers=None):
    """A message as a client gets it."""
    asked = {name: np.asarray(a) for name, a in arrays.items()}
    given = Broadcast(stage, number, asked, frame or Frame(), (1,), layers=layers or {})
    return wire.open_request(
        wire.write_request(given, 1, algorithm=algorithm or stage, run=run, extra={}), wire.message_kind(stage)
    )


@functools.cache
def keys_of(owners, nodes):
    """The folder with the keys of these owners, which are made once."""
    folder = tempfile.TemporaryDirectory()
    return folder, keys.write_keys(Path(folder.name) / "keys", nodes=nodes)


def signed(folder, shards, *, owners="ours", **rules):
    """Nodes with signed keys that answer under masks only."""
    _, made = keys_of(owners, len(shards))
    own = {"masked_only": True, "trusted_keys": made.ca.parent, "memory_dir": folder / "memory", **rules}
    return [Node(i, X, sign_key=made.nodes[i], **own) for i, X in enumerate(shards)]


class Sums:
    """Masked sums over these nodes, by a set-up of their own."""

    def __init__(self, nodes, *, algorithm="ssi", run=None, masks=None, single=False):
        self.nodes, self.algorithm = nodes, algorithm
        self.run = run or os.urandom(4).hex()
        self.setup = new_setup_id()
        made = {i: self.send(i, {"mask.step": int(Phase.KEYS), "mask.single": single}) for i in range(len(nodes))}
        self.group = MaskingGroup(masks or MaskedSums(), self.setup.tobytes(), len(nodes), made)
        self.group.take_shares(
            {i: self.send(i, {"mask.step": int(Phase.SHARES), **self.group.shares_message(i)}) for i in made}
        )

    def send(self, i, arrays, frame=None):
        """One message of the protocol."""
        named = {"mask.setup": self.setup, **arrays}
        number = next(NUMBERS)
        return self.nodes[i].ask(messages.STAGE, named, frame, run=self.run, number=number, algorithm=self.algorithm)

    def sum(self, stage, arrays, shapes, bounds, *, frame=None, lost=(), told=None, beside=None):
        """The sum of the answers to a message; `lost` upload nothing, and clients in `told` are asked other arrays."""
        group, frame, clients = self.group, frame or Frame(), len(self.nodes)
        group.begin(range(clients))
        whole = {name for name, part in registry.STAGES[stage].parts(arrays, None).items() if part.kind.whole}
        bounds = {name: np.asarray(bound, dtype=np.float64) for name, bound in bounds.items()}
        uploads = {}
        for i in range(clients):
            asked = (told or {}).get(i, arrays)
            about = {"mask.stage": bytes_as_array(stage.encode()), "mask.clients": clients, "mask.number": group.number}
            common = {**asked, **about, **{messages.BOUND + name: b for name, b in bounds.items()}, **(beside or {})}
            common = {name: np.asarray(a) for name, a in common.items()}
            if i not in lost:
                uploads[i] = self.send(i, {"mask.step": int(Phase.UPLOAD), **common, **group.upload_message(i)}, frame)
        group.take_uploads(uploads)
        if group.can_sum_directly:
            return fixed.decode(self._after_algorithm({}), shapes, bounds, clients, whole=whole)
        number = {"mask.step": int(Phase.UNMASK), "mask.number": group.number}
        total = self._after_algorithm({i: self.send(i, {**number, **group.unmask_message(i)}) for i in uploads})
        return fixed.decode(total, shapes, bounds, clients, whole=whole)

    def _end(self, answers):
        total = self.group.total(answers)
        self.group.end()
        return total

    def product(self, Z, **more):
        """The sum of C_i Z."""
        given = {"shapes": {"Y": Z.shape, "n": ()}, "bounds": {"Y": 1e6, "n": 1e6}}
        return self.sum("ssi", {"Z": Z}, **given, **more)["Y"]


def error_of(found, true):
    """How far what was recovered is from the truth, relative to that."""
    return np.linalg.norm(found - true) / np.linalg.norm(true)


def arriving(X=ARRIVED):
    """A run of three steps at two nodes whose rows arrive in batches."""
    run = assembly.tracking(registry.tracker("st_miss"), n_components=2, steps=3)
    return run, InProcessTransport([Stream(X, batch=20) for _ in "12"])
