"""Test thousands of messages that no strategy sends: nodes that serve everything answer or refuse each of them.

They are genuine ones, of every stage, of trackers and under masks, with an array or two changed. FLOWER_PCA_MUTATED is
how many there are over all seeds.
"""

import os
import re
import resource
from dataclasses import replace

import numpy as np
import pytest
from dishonest import NUMBERS, Node, RefusedError, Sums

from flower_pca import Stream, assembly, make, registry
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.core import kinds
from flower_pca.core.drive import rounds
from flower_pca.masking import messages
from flower_pca.masking.messages import Phase
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.split import ColumnPreparation
from flower_pca.simulation.backend import InProcessTransport, Shards
from flower_pca.vertical import stages as vertical
from flower_pca.vertical.rows import PartyColumns

pytestmark = pytest.mark.usefixtures("home")

SEEDS = 6
EVERY = int(os.environ.get("FLOWER_PCA_MUTATED", "5000"))
SPENT = 100  # products that a stage may compute in addition to the requested loops
D = 8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, D))
GAPPY = np.where(RNG.random((60, D)) < 0.1, np.nan, X)
U = np.eye(D)[:, :2]
SPLIT = ColumnPreparation()
SMALL = {"number": 0, "Z": U, "U": U, "B": U, "b": U[:, :1], "block": U, "reference": np.zeros(D), "part": np.eye(2)}
LOOSE = ["steps", "inner_steps", "width", "seed", "own", "k", "top", "measure", "step", "lap", "refine", "d", "outside"]
STRANGE = [0, -1, 1, 2, 2**31, 2**62, -(2**62), 0.5, 1e-320, 1e-150, 1e149, 1e308, -1e308, np.nan, np.inf, True]


def genuine():
    """Messages as runs send them, by stage: with the algorithm that each names."""
    found = {}

    def note(algorithm, run, transport):
        for message in rounds(run, transport):
            kept = found.setdefault((algorithm, message.stage), [])
            arrays = message.arrays_for(message.to[0])
            if arrays.keys() not in [known.keys() for known in kept]:
                kept.append(arrays)

    for name in registry.ALGORITHMS:
        few = {"max_rounds": 3} if hasattr(make(name), "max_rounds") else {}
        plain = registry.closing_of(make(name)).name == "ritz" and not make(name).basic
        settings = [
            {"reconstruction_error": True},
            {"missing": "mean", **dict.fromkeys(("monitor", "standard_errors"), plain)},
        ]
        settings += [{"dp": "dp(epsilon=9, delta=1e-6, clip=4.0)"}] * make(name).bounded
        for given in settings:
            run = assembly.run(assembly.config(name, n_components=2, **few, **given))
            note(name, run, Shards([LocalData(X), LocalData(X + 1.0)]))
    note(
        "krylov",
        assembly.run(assembly.config("krylov", n_components="signal")),
        Shards([LocalData(X + 9.0 * X[:, :1])] * 2),
    )
    run = assembly.run(assembly.config("krylov", n_components=2, partitioned_by="columns"))
    note("krylov", run, Shards([PartyColumns(LocalData(X), SPLIT)] * 2))
    for given in ({"adjust": "site"}, {"explain": "site"}, {"harmonize": "combat"}):
        run = assembly.run(assembly.config("krylov", n_components=2, **given))
        note("krylov", run, Shards([LocalData(X), LocalData(X + 1.0)]))
    for name in registry.TRACKERS:
        run = assembly.tracking(registry.tracker(name), n_components=2, steps=2)
        note(name, run, InProcessTransport([Stream(GAPPY, batch=20) for _ in "12"]))
    run = assembly.run(assembly.config("exact_per_pca(max_rounds=3)", n_components="shared"))
    note("exact_per_pca", run, Shards([LocalData(X + 9.0 * X[:, :1])] * 3))
    summed = [{}, {"reference": np.zeros(D), "seed": np.array(1), "width": np.array(2), "peaks": np.array(False)}]
    none = {"covariates": np.array(0)}  # Runs without names of columns have no covariates.
    later = {"slopes": np.zeros((0, D)), "grand": np.zeros(D), "sigma": np.ones(D)}
    adjusted = [{**first, **none} for first in summed]
    harmonized = [none, *({**second, **later} for second in adjusted)]
    alone = {
        ("ssi", "adjusted_summed_opening"): adjusted,
        ("ssi", "harmonized_summed_opening"): harmonized,
        ("standardize", "standardize"): [{}],
        ("standardize", "gene_sums"): [{"expm1": np.array(True)}, {"expm1": np.array(False)}],
        ("standardize", "hardy_weinberg"): [{"least": np.array(1e-6)}],
        ("names", "names"): [{}],
        ("sparse_pca", "oblique"): [{"Z": U}],
    }  # sent if no product is known
    return {**found, ("ssi", "summed_opening"): summed, **alone}


def mutated(rng, arrays):
    """A message with one or two of its arrays changed, dropped or added."""
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    # With two changes, the first one is usually refused before the second matters.
    for _ in range(1 + int(rng.random() < 0.3)):
        own = bool(arrays) and rng.random() < 0.5  # Arrays of other stages are refused by name.
        name = str(rng.choice([*arrays] if own else [*arrays, *SMALL, *LOOSE]))
        value = STRANGE[int(rng.integers(len(STRANGE)))]
        match int(rng.integers(7)):
            case 0:
                arrays.pop(name, None)
            case 1:
                arrays[name] = np.array(value)
            case 2:
                a = np.array(arrays.get(name, U), dtype=float)
                a.flat[: max(1, a.size // 2)] = value
                arrays[name] = a
            case 3:
                shape = tuple(int(s) for s in rng.choice([0, 1, 2, D, D + 1, 50], size=int(rng.integers(4))))
                arrays[name] = rng.standard_normal(shape)
            case 4:
                arrays[name] = np.asarray(arrays.get(name, U)).astype(str(rng.choice(["f4", "i8", "u1", "?", "c16"])))
            case 5:
                arrays[name] = np.asarray(arrays.get(name, U))[None]
            case _:
                width, size = int(rng.choice([1, 7, 900, 1001])), float(rng.choice([1, 1e9]))
                arrays[name] = rng.standard_normal((D, width)) * size
    return arrays


def any_frame(rng):
    """A frame, mostly none."""
    if rng.random() < 0.7:
        return Frame()
    values = [float(v) for v in STRANGE]
    parts = [np.full(int(rng.choice([D, D, D, 3])), rng.choice(values)) if rng.random() < 0.5 else None for _ in "123"]
    return Frame(*parts)


def long_loops(arrays):
    """Whether a message asks for nearly as many steps as there may be: it is within its limit, and takes its time."""
    loops = [float(np.max(arrays[name], initial=1)) for name in ("steps", "inner_steps") if name in arrays]
    return any(kinds.MOST_STEPS / 10 < loop <= kinds.MOST_STEPS for loop in loops)


class Watch:
    """Counts what is answered and what is refused, and products; and looks at the memory taken."""

    def __init__(self, monkeypatch):
        self.products, self.outcomes = 0, {"answered": 0, "refused": 0, "other": 0}
        for kind in (LocalData, FixedData):
            monkeypatch.setattr(kind, "matmat", self._counting(kind.matmat))
        self.before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def _counting(self, plain):
        def matmat(data, Z, **more):
            self.products += 1
            return plain(data, Z, **more)

        return matmat

    def ask(self, node, *given, **named):
        """Ask; whatever is no refusal in a sentence is a failure of the test."""
        self.products = 0
        try:
            node.ask(*given, **named)
            self.outcomes["answered"] += 1
        except RefusedError as error:
            self.outcomes["refused" if by_its_kind(str(error)) else "other"] += 1
        assert self.products <= kinds.MOST_STEPS + SPENT

    def done(self, least):
        assert self.outcomes.pop("other") == 0
        assert min(self.outcomes.values()) >= least, self.outcomes
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.before) * 1024
        assert taken <= 2 * X.nbytes + 100e6


@pytest.mark.slow
def test_the_sample_has_messages_of_every_stage(genuine_messages):
    assert {stage for _, stage in genuine_messages} == set(registry.STAGES)


@pytest.mark.slow
def test_a_message_without_an_array_that_it_needs_is_refused_by_name(genuine_messages):
    """Of every stage, each array of each message left out: answered, or refused for what the stage reads."""
    refused, rules = {}, {"allow": allowed_names(), "missing": "mean", "split_columns": "any"}
    for (algorithm, stage), kept in genuine_messages.items():
        for arrays in kept:
            for name in arrays:
                rows = Stream(GAPPY, batch=20) if algorithm in registry.TRACKERS else X
                node, frame = Node(0, rows, **rules), Frame(split=SPLIT if stage in vertical.BOTH else None)
                less = {other: a for other, a in arrays.items() if other != name}
                try:
                    node.ask(stage, less, frame, algorithm=algorithm)
                except RefusedError as error:
                    refused[stage, name] = str(error)
    assert len(refused) > 50
    assert not [key for key, words in refused.items() if not by_its_kind(words)]


SHAPES = [(), (0,), (3, 5), (D, 0), (0, 2), (D + 1, 2), (D,), (D, 2), (1, D, 2)]
TYPES = ["c16", "i8", "?", "S3", "f2", ">f8", "g", "u8", "f4", "M8[s]"]


def others_of(a):
    """The same array of other types, sizes and shapes, and with other numbers."""
    yield from (a.astype(kind) for kind in TYPES if kind != "M8[s]" or a.dtype.kind in "iu")
    yield from (np.zeros(shape) for shape in SHAPES)
    yield from (np.full(a.shape, number) for number in (0, 1, 2, -1, 0.0, 1.0, -1.0, 0.5))
    yield np.array(["a", "b"])


def by_its_kind(words):
    """Whether a refusal says in a sentence of ours what is wrong, and what to do, and is of no exception of numpy's."""
    return re.fullmatch(r".+\. .+\.(['\"]\))?|.{500}\.\.\.", words) and not re.search(
        "could not process a message|because of an error", words
    )


def by_names(genuine_messages):
    """One message of each stage and set of names."""
    found = {}
    for (algorithm, stage), kept in genuine_messages.items():
        for arrays in kept:
            arrays = {name: np.asarray(a) for name, a in arrays.items()}
            found.setdefault((stage, *sorted(arrays)), (algorithm, stage, arrays))
    return found.values()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_an_array_of_another_type_or_shape_is_refused_by_its_kind(genuine_messages):
    """Each array of every stage, one at a time: answered, or refused for what it is."""
    refused, rules, seen = {}, {"allow": allowed_names(), "missing": "mean", "split_columns": "any"}, set()
    for algorithm, stage, arrays in by_names(genuine_messages):
        frame = Frame(split=SPLIT if stage in vertical.BOTH else None)
        node = Node(0, Stream(GAPPY, batch=20) if algorithm in registry.TRACKERS else X, **rules)
        for name in [name for name in arrays if (stage, name) not in seen]:
            seen.add((stage, name))
            for i, other in enumerate(others_of(arrays[name])):
                node.context.state.clear()
                try:
                    node.ask(stage, {**arrays, name: other}, frame, algorithm=algorithm)
                except RefusedError as error:
                    refused[stage, name, i] = str(error)
    assert len(refused) > 500
    assert not {key: words for key, words in refused.items() if not by_its_kind(words)}


LAYERED = {"dp.clip": np.array(4.0), "dp.noise": np.array(90.0), "dp.budget": np.array(0.1), "wire.bits": np.array(32)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("named", [["wire.bits"], [*LAYERED], ["dp.clip", "dp.noise", "dp.budget"]], ids=len)
def test_a_wrong_array_of_a_layer_is_refused_by_its_kind(named):
    """How many bits, how much noise: nothing of it, or of another type or shape."""
    asked = {"Z": U, **{name: LAYERED[name] for name in named}}
    Node(0, X).ask("ssi", asked)
    strange = []
    for name in asked:
        less = {other: a for other, a in asked.items() if other != name}
        for other in (less, *({**asked, name: a} for a in others_of(asked[name]))):
            try:
                Node(0, X).ask("ssi", other)
            except RefusedError as error:
                strange += [(name, str(error))] if not by_its_kind(str(error)) else []
    assert not strange


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.filterwarnings("ignore:masked_only")
def test_a_wrong_array_of_a_masked_sum_is_refused_by_its_kind(genuine_messages):
    """Those of each phase, left out or changed; and those of each stage that masks carry."""
    node, asked, states = at_every_phase()
    inner = [
        arrays | {"mask.stage": messages.bytes_as_array(stage.encode())}
        for _, stage, arrays in by_names(genuine_messages)
    ]
    about = {name: a for name, a in asked[Phase.UPLOAD].items() if name.startswith(messages.PREFIX)}
    cases = [*asked.items(), *((Phase.UPLOAD, {**about, **arrays}) for arrays in inner)]
    refused, seen = {}, set()
    for case, (phase, arrays) in enumerate(cases):
        of_protocol, stage = case < len(asked), str(arrays.get("mask.stage"))
        for name in [name for name in arrays if of_protocol or not name.startswith(messages.PREFIX)]:
            if not of_protocol and (stage, name) in seen:
                continue
            seen.add((stage, name))
            less = {other: a for other, a in arrays.items() if other != name}
            others = [less, *({**arrays, name: a} for a in others_of(arrays[name]))]
            # All messages without masks are tested above.
            for i, other in enumerate(others if of_protocol else others[case % 3 :: 3]):
                node.context.state.clear()
                node.context.state.update(states[phase])
                try:
                    node.ask(messages.STAGE, other, run="fuzz", number=next(NUMBERS), algorithm="ssi")
                except RefusedError as error:
                    refused[case, phase, name, i] = str(error)
    assert len(refused) > 500
    assert not {key: words for key, words in refused.items() if not by_its_kind(words)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_mutated_messages_are_answered_or_refused(seed, genuine_messages, monkeypatch):
    """No crash that is no refusal, no more products than are stated, no memory beyond the bound."""
    rng, watch, stages = np.random.default_rng(seed), Watch(monkeypatch), list(genuine_messages)
    for _ in range(EVERY * 3 // 4 // SEEDS):
        algorithm, stage = stages[int(rng.integers(len(stages)))]
        arrays = mutated(
            rng, genuine_messages[algorithm, stage][int(rng.integers(len(genuine_messages[algorithm, stage])))]
        )
        if long_loops(arrays):
            continue
        tracked = algorithm in registry.TRACKERS and rng.random() < 0.9
        counted = {} if tracked or rng.random() < 0.9 else {"max_columns": 100 * D}
        rules = {"allow": allowed_names(), "missing": "mean", "split_columns": "any", **counted}
        node = Node(0, Stream(GAPPY, batch=20) if tracked else GAPPY if rng.random() < 0.1 else X, **rules)
        split = SPLIT if rng.random() < (0.9 if stage in vertical.BOTH else 0.05) else None
        beside = Covariates(()) if stage.startswith(("adjusted", "harmonized")) else None
        frame = replace(any_frame(rng), split=split, covariates=beside)
        watch.ask(node, stage, arrays, frame, algorithm=algorithm)
    watch.done(EVERY // SEEDS // 20)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore:masked_only")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_mutated_messages_of_masked_sums_are_answered_or_refused(seed, genuine_messages, monkeypatch):
    """Of every phase, at a node that is where that phase is due."""
    rng, watch = np.random.default_rng([seed, 1]), Watch(monkeypatch)
    stages = [key for key in genuine_messages if key[1] not in registry.TRACKERS]
    node, asked, states = at_every_phase()
    for _ in range(EVERY // 4 // SEEDS):
        phase = Phase(int(rng.integers(4)))
        arrays = dict(asked[phase])
        if phase is Phase.UPLOAD and rng.random() < 0.5:
            algorithm, stage = stages[int(rng.integers(len(stages)))]
            inner = genuine_messages[algorithm, stage][int(rng.integers(len(genuine_messages[algorithm, stage])))]
            arrays = {name: a for name, a in arrays.items() if name.startswith(messages.PREFIX)}
            arrays |= {**inner, "mask.stage": messages.bytes_as_array(stage.encode())}
        changed = mutated(rng, arrays)
        if long_loops(changed):
            continue
        node.context.state.clear()
        node.context.state.update(states[phase])
        watch.ask(node, messages.STAGE, changed, any_frame(rng), run="fuzz", number=next(NUMBERS), algorithm="ssi")
    watch.done(EVERY // SEEDS // 400)


def at_every_phase():
    """A node among three, and by phase the message that is due, and the node's state before it."""
    asked, states = {}, {}

    class Watched(Sums):
        def send(self, i, arrays, frame=None):
            if i == 0:
                phase = Phase(int(arrays["mask.step"]))
                asked[phase] = {name: np.asarray(a) for name, a in {"mask.setup": self.setup, **arrays}.items()}
                states[phase] = dict(self.nodes[0].context.state)
            return super().send(i, arrays, frame)

    nodes = [Node(i, X + i, allow=allowed_names()) for i in range(3)]
    Watched(nodes, run="fuzz").product(U)
    return nodes[0], asked, states
