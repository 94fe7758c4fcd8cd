"""A masked run driven by hand, so that a test can see, change or lose every message and answer."""

from functools import partial

import numpy as np
from fake_grid import arrays_in

from flower_pca import MaskedSums, assembly, client_half, make
from flower_pca.core.stage import Failure, Reply
from flower_pca.masking import group, primitives
from flower_pca.masking.dither import seeded_dither
from flower_pca.masking.messages import SumConditions
from flower_pca.rows.local import LocalData

STEPS = ("keys", "shares", "upload", "unmask")


def gappy(parts, seed=0, share=0.2):
    """With gaps at all clients but the last; the first has no value at all in one column."""
    rng = np.random.default_rng([seed, 7])
    holes = [np.where(rng.random(X.shape) < share, np.nan, X) for X in parts[:-1]]
    holes[0][:, 1] = np.nan
    return [*holes, parts[-1]]


def gone(*clients, at, back=None, of=5):
    """Of so many clients, some that cannot be reached from one message on, until another."""

    def present(number):
        away = number >= at and (back is None or number < back)
        return [i for i in range(of) if not (away and i in clients)]

    return present


def parts_without(parts, *clients):
    """The rows of all other clients."""
    return [X for i, X in enumerate(parts) if i not in clients]


def restored_secrets(monkeypatch):
    """What a server puts together of shares from now on."""
    found, restore = [], primitives.restore_secret
    monkeypatch.setattr(group.primitives, "restore_secret", lambda shares: found.append(restore(shares)) or found[-1])
    return found


def step_of(message):
    """The step of the protocol that a message over Flower asks for, and its sum."""
    arrays = arrays_in(message)
    return int(arrays["mask.step"]), int(arrays.get("mask.number", -1))


class Run:
    """A masked run and its clients; `sent` and `came` are what a server has seen."""

    def __init__(self, parts, algorithm="ssi", *, n_components=2, masks=None, identities=None, **settings):
        self.nodes = [LocalData(X) for X in parts]
        self.memories = [{} for _ in parts]
        self.identities = [None] * len(parts) if identities is None else identities
        masks = MaskedSums() if masks is None else masks
        config = assembly.config(make(algorithm), mask=masks, n_components=n_components, **settings)
        self.session = assembly.run(config)
        self.sent, self.came = [], []
        self.group = None  # the group of another run, if this one stands for the server's knowledge

    def answer(self, message, i):
        """One client's answer; its memory moves on."""
        data = self.nodes[i].in_frame(message.frame)
        keep = {
            "layers": message.layers,
            "demands": SumConditions(self.identities[i]),
            "dither": partial(seeded_dither, 0, i),
        }
        up, self.memories[i] = client_half.answer(message.stage, message.arrays_for(i), data, self.memories[i], **keep)
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
