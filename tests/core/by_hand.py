"""A run driven by hand, so that a test can change or lose every answer."""

import numpy as np
from builders import deal, falling, framed, sine, svd

from flower_pca import assembly, client_half
from flower_pca.core.drive import drive as carry
from flower_pca.core.model import Model
from flower_pca.core.stage import Failure, Reply
from flower_pca.rows.local import LocalData


def session(algorithm="krylov", **arguments):
    return assembly.run(assembly.config(algorithm, **{"n_components": 2, **arguments}))


def local_clients(shards):
    return [LocalData(X, who=f"client {i}") for i, X in enumerate(shards)]


def honest(message, client, data, memories=None):
    """The honest reply of one client."""
    memory = {} if memories is None else memories.setdefault(client, {})
    up, memory = client_half.answer(
        message.stage, message.arrays_for(client), data.in_frame(message.frame), memory, layers=message.layers
    )
    if memories is not None:
        memories[client] = memory
    return Reply(client, message.number, up)


def step(run, nodes, present=None, *, change=None, memories=None):
    """One message and its answers; `change` maps the honest replies to what arrives. Returns the message, or None."""
    message = run.pending(range(len(nodes)) if present is None else present)
    if message is not None:
        replies = [honest(message, i, nodes[i], memories) for i in message.to]
        run.advance(replies if change is None else change(replies))
    return message


class Honest:
    """A transport of clients that all answer, those of them that are present."""

    def __init__(self, nodes, present, memories):
        self.nodes, self.memories = nodes, memories
        self._present = range(len(nodes)) if present is None else present

    def present(self):
        return self._present

    def ask(self, message):
        return (honest(message, i, self.nodes[i], self.memories) for i in message.to)


def drive(run, nodes, present=None, *, memories=None):
    """Honest rounds until the end."""
    return carry(run, Honest(nodes, present, {} if memories is None else memories))


def assert_pca_of(result, rows, k=2):
    """The centered PCA of these rows, by LAPACK."""
    s, V = svd(framed(rows))
    np.testing.assert_allclose(result.mean_, rows.mean(axis=0), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(result.singular_values_, s[:k], rtol=1e-12)
    assert result.n_samples_ == len(rows)
    assert sine(V[:, :k].T, result.components_) < 1e-10


def without_answer(client, *, lasting=False):
    """A change of the honest replies: one client gives none."""
    return lambda replies: [Failure(r.client, "no answer", lasting) if r.client == client else r for r in replies]


X = falling(120, 10, seed=0)
SHARDS = deal(X, (30, 20, 50, 20))


def rows_without(*gone):
    """The rows of all of these clients but some, together."""
    return np.concatenate([shard for i, shard in enumerate(SHARDS) if i not in gone])


def model(**known):
    """What is known when a run begins."""
    return Model(**{"n_components": 2, "center": True, "scale": None, "seed": 3, **known})
