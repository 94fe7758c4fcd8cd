"""Test messages to virtual nodes, and their answers, with a changed value, array or record.

A changed answer is a failure of its clients, or counted; no run ends by an exception of Python's. A changed message is
answered or refused for what it is.
"""

import numpy as np
import pytest
from builders import unequal
from fake_grid import ArrayRecord, Message, RecordDict, hosts_of, in_a_run
from flwr.app import ConfigRecord
from test_mutated import by_its_kind, others_of

from flower_pca import ConfigError, NotEnoughNodes
from flower_pca.strategies import PCAStrategy

SHARDS = unequal()[:4]
MODES = {"stacked": {"hosted": "stacked", "reconstruction_error": True}, "masked": {"hosted": "stacked", "mask": True}}
TEXTS = ["", "x", "{", "[]", "[1]", "{}", '{"0": 1}', '{"0": ["U"]}', '{"0": [1]}', '[{"a": {}}, {}]', "[" * 20_000]
LISTS = [[], [0], [0, 1], [1, 0], [0, 0], [7], [-1], [2**62], ["a"], ["0", "1"], [1.5], [True, False]]
VALUES = [0, -1, 2**62, 1.5, float("nan"), float("inf"), True, b"", b"\x00\xff", *TEXTS, *LISTS]


def mutants(content):
    """The records, each changed in one place."""
    for name, record in content.config_records.items():
        for key in record:
            rest = {other: value for other, value in record.items() if other != key}
            for values in (rest, *({**rest, key: value} for value in VALUES)):
                yield {**dict(content.items()), name: ConfigRecord(values)}
    for name, record in content.array_records.items():
        arrays = [a.numpy() for a in record.values()]
        lists = [[], [*arrays, np.zeros(3)]]
        for i, a in enumerate(arrays):
            others = [*others_of(a), a * 1e9, a[None], a[:1] if a.ndim else a]
            others += [np.concatenate([a, a])] if a.ndim else []
            lists += [[*arrays[:i], np.asarray(other), *arrays[i + 1 :]] for other in others]
        for changed in lists:
            yield {**dict(content.items()), name: ArrayRecord(changed)}
    for gone in content:
        yield {name: record for name, record in content.items() if name != gone}


def stage_of(message):
    config = next(iter(message.content.config_records.values()), {})
    return config.get("stage", "properties")


class Changing:
    """Two nodes of two clients each; the first gets, or gives, one record changed, once."""

    def __init__(self, mode):
        self.asked = {"n_components": 2, "min_nodes": 2, "round_timeout": 0.5, "node_timeout": 0.1, **MODES[mode]}

    def fit(self, tamper=None, on_push=None):
        grid = hosts_of(SHARDS, each=2)
        bad = grid.node(0)
        if tamper:
            grid.tamper = lambda m, reply: tamper(m, reply) if m.metadata.dst_node_id == bad else reply
        if on_push:
            grid.on_push = lambda m: on_push(m) if m.metadata.dst_node_id == bad else None
        with in_a_run():
            return PCAStrategy("krylov(max_rounds=2)", **self.asked).fit(grid)

    def genuine(self, side):
        """By stage, what goes to the node, or comes from it."""
        seen = {}

        def note(message, reply):
            content = message.content if side == "node" else reply.content
            seen.setdefault(stage_of(message), RecordDict(dict(content.items())))
            return reply

        self.fit(note)
        return seen

    def failures(self, side, stage, records):
        """What readers of the result are told: why answers are missing; or why there is no result."""
        done = []

        def due(message):
            done.extend([1] * (here := not done and stage_of(message) == stage))
            return here

        def answer(message, reply):
            return Message(RecordDict(records), reply_to=message) if due(message) else reply

        def push(message):
            if due(message):
                for name in list(message.content):
                    del message.content[name]
                message.content.update(records)

        try:
            result = self.fit(answer) if side == "server" else self.fit(on_push=push)
        except (NotEnoughNodes, ConfigError) as error:
            return [str(error)]
        return [why for record in result.history for why in record.failures.values()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("side", ["server", "node"])
@pytest.mark.parametrize(("mode", "many"), [("stacked", 40), ("masked", 12)])
def test_what_hosts_are_asked_and_answer_is_counted_or_refused_by_its_kind(mode, many, side):
    rng, changing = np.random.default_rng(0), Changing(mode)
    cases = [(stage, each) for stage, content in changing.genuine(side).items() for each in mutants(content)]
    said = []
    for i in rng.choice(len(cases), many, replace=False):
        said += changing.failures(side, *cases[i])
    assert said
    assert not [words for words in said if not by_its_kind(words)]
