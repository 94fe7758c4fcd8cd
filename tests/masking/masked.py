"""A masked run driven by hand: every message and answer can be seen, changed or lost on its way."""

import numpy as np

from flower_pca import MaskedSums, assembly, make
from flower_pca.core.stage import Failure, Reply
from flower_pca.rows.local import LocalData

STEPS = ("keys", "shares", "upload", "unmask")


def shards(n_clients, d=8, seed=0, rows=40):
    """Rows of which two directions stand out, with means that differ between clients."""
    rng = np.random.default_rng([seed, n_clients])
    spread = np.concatenate([[4.0, 3.0], 0.5 * 0.9 ** np.arange(d - 2)])
    made = []
    for i in range(n_clients):
        made.append(rng.standard_normal((rows + i, d)) * spread + 0.3 * rng.standard_normal(d))
    return made


def pooled(parts, k=2):
    """LAPACK's components of all rows together."""
    X = np.vstack(parts)
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k]


class Run:
    """A masked run and its clients; `sent` and `came` are what a server has seen."""

    def __init__(self, parts, algorithm="ssi", *, n_components=2, masks=None, identities=None, **settings):
        self.nodes = [LocalData(X) for X in parts]
        self.memories = [{} for _ in parts]
        self.identities = [None] * len(parts) if identities is None else identities
        masks = MaskedSums() if masks is None else masks
        question = assembly.question(make(algorithm), mask=masks, n_components=n_components, **settings)
        self.session = assembly.run(question)
        self.sent, self.came = [], []
        self.group = None  # of another run, where this one stands for what its server knows

    def answer(self, message, i):
        """One client's answer; its memory moves on."""
        data = self.nodes[i].framed(message.frame)
        keep = {"identity": self.identities[i]}
        up, self.memories[i] = assembly.answer(message.stage, message.arrays_for(i), data, self.memories[i], **keep)
        return Reply(i, message.number, up)

    def message(self):
        """The next message; None at the end."""
        return self.session.pending(range(len(self.nodes)))

    def step(self, *, gone=(), silent=(), change=None):
        """One message and its answers: `gone` never get it, `silent` answer in vain; `change` alters the others."""
        message = self.message()
        replies = []
        for i in message.to:
            if i in gone:
                replies.append(Failure(i, "gone"))
                continue
            reply = self.answer(message, i)
            replies.append(Failure(i, "silent") if i in silent else change(reply) if change else reply)
        self.sent.append(message)
        self.came.append({r.client: r.arrays for r in replies if isinstance(r, Reply)})
        return self.session.advance(replies)

    def until(self, name, number):
        """Go on to where the next message is the given step of the given sum."""
        while not self.due(name, number):
            self.step()
        return self

    def due(self, name, number):
        message = self.message()
        here = int(message.arrays.get("mask.number", np.array(0)))
        return STEPS[int(message.arrays["mask.step"])] == name and here == number

    def finish(self):
        while self.message() is not None:
            self.step()
        return self.session.result()
