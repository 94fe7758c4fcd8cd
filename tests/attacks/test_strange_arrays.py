"""Test messages of strange arrays: other dtypes, layouts, names and records, at nodes that serve everything.

They are genuine ones, of every stage, of trackers and under masks, with arrays of other stages among their own, other
dtypes, shapes without entries, bits that no sum brings about, names that are none, and values of other types in place
of texts and numbers. FLOWER_PCA_STRANGE is how many there are.
"""

import os
import struct

import numpy as np
import pytest
from dishonest import NUMBERS, Node, RefusedError, request
from test_mutated import GAPPY, SPLIT, D, Watch, X, at_every_phase, long_loops

from flower_pca import Stream, registry, wire
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.masking import messages
from flower_pca.masking.messages import Phase
from flower_pca.rows.frame import Frame
from flower_pca.vertical import stages as vertical

pytestmark = pytest.mark.usefixtures("home")

EVERY = int(os.environ.get("FLOWER_PCA_STRANGE", "2000"))
KINDS = ["O", "c16", "f2", "?", ">f8", ">i4", ">f4", "u8", "i2", "f4", "S8", "U3", "M8[s]", "m8[s]", "V8", "g"]
NAN = np.frombuffer(struct.pack("<Q", 0x7FF4DEADBEEF0001))[0]  # a signaling NaN, which carries a payload
BITS = [NAN, -0.0, 5e-324, -5e-324, 2.2e-308, 1e-310, np.nextafter(1.0, 2.0), -np.inf, 65504.0, 2.0**53 + 2]
NAMES = [
    "", " ", "\x00", "\x1b[2Jx", "U\n", "a" * 5000, "frame.mean", "frame.own", "frame.scale", "wire.bits", "auto", "d",
    "U.exponents", "own.others", "steps.others", "own.positions", "own.names", "mask.bound.Y", "mask.whole.Y", "seed",
    "mask.stage", "dp.budget", "dp.clip", "dp.noise", "gaps", "block", "\u202e", "名",
]  # fmt: skip
VALUES = [None, [], [1], ["U"], {"a": {"b": 1}}, b"\xff", -1, 2**70, float("nan"), True, "", "x" * 5000, "\x1b[31m"]


class Raw:
    """A node that is asked with arrays and a config as they are, whether or not they could have been sent."""

    def __init__(self, node):
        self.node = node

    def ask(self, parameters, config):
        """The answer; RefusedError with the words of a refusal."""
        evaluates = config.get("stage") == wire.EVALUATE
        told = (self.node.client.evaluate if evaluates else self.node.client.fit)(parameters, config)[2]
        if "refusal" in told:
            assert len(told["refusal"]) < 6000
            assert told["refusal"].isprintable()
            raise RefusedError(told["refusal"])


def strange(rng, arrays, other):
    """A message with one to three of its arrays made strange."""
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    for _ in range(int(rng.integers(1, 4))):
        foreign = not arrays or rng.random() < 0.4  # Such arrays are usually refused by name.
        name = str(rng.choice([*arrays, *NAMES] if foreign else list(arrays)))
        a = np.asarray(arrays.get(name, np.eye(D)[:, :2]))
        match int(rng.integers(9)):
            case 0:  # an array of another stage, under its own name or this one
                taken = str(rng.choice(list(other))) if other else name
                arrays[name if rng.random() < 0.5 else taken] = np.asarray(other.get(taken, a))
            case 1 | 2:
                arrays[name] = converted(a, str(rng.choice(KINDS)))
            case 3:
                arrays[name] = np.zeros(tuple(int(s) for s in rng.choice([0, 1, 2, D], size=int(rng.integers(1, 5)))))
            case 4:
                filled = converted(a, "f8").copy()
                filled.flat[rng.integers(max(filled.size, 1)) if filled.size else slice(0)] = rng.choice(BITS)
                arrays[name] = filled
            case 5:
                arrays[name] = np.full(a.shape, rng.choice(BITS))
            case 6:
                wide = np.repeat(np.repeat(np.atleast_2d(a), 2, axis=0), 2, axis=1)
                arrays[name] = [wide[::2, ::2], wide[::-1, ::-1][::2, ::2], np.asfortranarray(a), a.T][rng.integers(4)]
            case 7:
                arrays[name] = np.broadcast_to(a.ravel()[0], a.shape) if a.size else a[None]
            case _:
                arrays[str(rng.choice(NAMES))] = a
    return arrays


def converted(a, kind):
    """An array of another kind; what has no such numbers becomes one of zeros."""
    with np.errstate(all="ignore"):
        try:
            return a.astype(kind)
        except (TypeError, ValueError, RuntimeError):
            return np.zeros(a.shape, dtype=kind)


def told_otherwise(rng, arrays, config):
    """The arrays and the config of a message, with a name or a value of the config that is another now and then."""
    names, config = list(arrays), dict(config)
    if names and rng.random() < 0.15:
        # usually a name that is there twice
        names[int(rng.integers(len(names)))] = names[int(rng.integers(len(names)))]
    config["names"] = ",".join(names)
    if rng.random() < 0.3:
        config[str(rng.choice([*config, "columns", "split", "own", "site", "x"]))] = VALUES[rng.integers(len(VALUES))]
    return list(arrays.values()), config


def picked(rng, said):
    algorithm, stage = list(said)[int(rng.integers(len(said)))]
    return algorithm, stage, said[algorithm, stage][int(rng.integers(len(said[algorithm, stage])))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_strange_messages_are_answered_or_refused(genuine_messages, monkeypatch):
    """No crash that is no refusal, no more products than are stated, no memory beyond the bound."""
    rng, watch = np.random.default_rng(20), Watch(monkeypatch)
    for _ in range(EVERY * 3 // 4):
        algorithm, stage, arrays = picked(rng, genuine_messages)
        # arrays of another message, to be refused by name
        other = picked(rng, genuine_messages)[2] if rng.random() < 0.6 else arrays
        arrays = strange(rng, arrays, other)
        if loops(arrays):
            continue
        tracked = algorithm in registry.TRACKERS and rng.random() < 0.9
        rules = {"allow": allowed_names(), "missing": "mean", "split_columns": "any"}
        node = Node(0, Stream(GAPPY, batch=20) if tracked else GAPPY if rng.random() < 0.1 else X, **rules)
        split = SPLIT if rng.random() < (0.9 if stage in vertical.BOTH else 0.05) else None
        _, config = request(stage, {}, Frame(split=split), "r", next(NUMBERS), algorithm)
        watch.ask(Raw(node), *told_otherwise(rng, arrays, config))
    watch.done(EVERY // 20)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_strange_messages_of_masked_sums_are_answered_or_refused(genuine_messages, monkeypatch):
    rng, watch = np.random.default_rng(21), Watch(monkeypatch)
    node, asked, states = at_every_phase()
    for _ in range(EVERY // 4):
        phase = Phase(int(rng.integers(4)))
        arrays = dict(asked[phase])
        _, stage, inner = picked(rng, genuine_messages)
        if phase is Phase.UPLOAD and rng.random() < 0.5 and stage not in registry.TRACKERS:
            arrays = {name: a for name, a in arrays.items() if name.startswith(messages.PREFIX)}
            arrays |= {**inner, "mask.stage": messages.bytes_as_array(stage.encode())}
        arrays = strange(rng, arrays, inner)
        if loops(arrays):
            continue
        node.context.state.clear()
        node.context.state.update(states[phase])
        _, config = request(messages.STAGE, {}, None, "fuzz", next(NUMBERS), "ssi")
        watch.ask(Raw(node), *told_otherwise(rng, arrays, config))
    watch.done(EVERY // 400)


def loops(arrays):
    """Whether a message takes its time, within its limits."""
    real = {name: a for name, a in arrays.items() if np.asarray(a).dtype.kind in "fiub"}
    with np.errstate(all="ignore"):
        return long_loops({name: a for name, a in real.items() if a.size})


@pytest.mark.parametrize("kind", ["f2", "f4"])
def test_the_scale_of_a_column_is_no_number_beside_the_block(kind):
    """Exponents of packed columns are gone before a node does anything: the block is the one that they make."""
    small, node = np.linalg.qr(np.random.default_rng(0).standard_normal((D, 2)))[0].astype(kind), Node(0, X)
    _, config = request("ssi", {"Z": small, "Z.exponents": np.zeros(2, np.int16)}, algorithm="ssi")
    block = np.ldexp(small.astype(np.float64), [-40, 90])
    said, _, _ = node.client.fit([small, np.array([-40, 90], np.int16)], config)
    assert np.array_equal(said[0], node.ask("ssi", {"Z": block})["Y"])
    for much in (300, 32767):  # above the allowed size, and above the range of floats
        told = node.client.fit([small, np.array([0, much], np.int16)], config)[2]["refusal"]
        assert told.startswith("The array Z of the server's message has ")
    assert np.array_equal(node.client.fit([small, np.array([-32768, -2000], np.int16)], config)[0][0], np.zeros((D, 2)))
