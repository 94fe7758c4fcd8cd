"""Test every sentence of a profile as a claim, against a scripted attacker under exactly its rules."""

import itertools
import logging
import re
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import rounding
from cases import every
from dishonest import NUMBERS, Node, RefusedError, Sums, error_of, request, signed
from twins import D as TWIN_COLUMNS
from twins import questions, twins

from flower_pca import registry
from flower_pca.audit.sentences import disclosures_of
from flower_pca.clients import Rules
from flower_pca.clients.base import node_rows
from flower_pca.clients.policy import promises
from flower_pca.clients.policy.profiles import SETS
from flower_pca.core.kinds import ROWS, Kind, Part
from flower_pca.data import sources
from flower_pca.dp.gaussian import epsilon_of, noise_of
from flower_pca.layers import noise
from flower_pca.masking import fixed
from flower_pca.names.table import Table
from flower_pca.rows.frame import Frame
from flower_pca.rows.split import ColumnPreparation

pytestmark = pytest.mark.usefixtures("home")

D = 6
RNG = np.random.default_rng(0)
SHARDS = [RNG.standard_normal((100 + 10 * i, D)) + i for i in range(4)]
X, ALL, ONE = SHARDS[0], np.eye(D), np.eye(D)[:, :1]
ROW = 1e6 * np.ones((1, D))  # a row so large that it is visible in any sum
OPENING = {"peaks": False, "seed": 1, "width": 2}
STD = 8.0
BUDGET = {"dp.clip": 1.0, "dp.noise": STD, "dp.budget": noise_of(1.0, 1e-6) ** 2}
NOISED = {"Z": ONE, **BUDGET}
BOUNDED = {  # requests that are answered with noise
    "ssi": {"Z": ONE},
    "krylov": {"B": ONE},
    "covariance": {"columns": D},
    "private_opening": {"sums": True, "columns": True},
}
PARTS = {"Y": (D, 1), "n": ()}
# names for which some stages are refused first
OTHERS = "compare single rows|allow_noise is not set|must be about columns, but this one"


def algorithm_of(stage):
    return next(iter(sorted(registry.algorithms_of_stage(stage))), "krylov")


def every_question(d):
    """A message for each stage that compares no rows, and for each that does."""
    block = np.linalg.qr(np.random.default_rng(4).standard_normal((d, 3)))[0]
    asked = questions(np.random.default_rng(5), block)
    asked |= {"covariance": {"columns": d}, "private_opening": BOUNDED["private_opening"]}
    for stage in ("summed_opening", "adjusted_summed_opening"):
        asked[stage] |= {"reference": np.zeros(d)}
    return {stage: {} for stage in registry.STAGES} | asked


@contextmanager
def noise_known():
    """A server to whom a node's noise is known, and so what lies under it."""
    plain = noise.add_noise
    noise.add_noise = lambda a, deviation, bits: np.array(a, dtype=np.float64)
    try:
        yield
    finally:
        noise.add_noise = plain


class Foe:
    """A server of nodes that run one profile."""

    def __init__(self, profile, folder, **beside):
        self.profile, self.folder, self.count, self.beside = profile, folder, 0, beside

    def page(self):
        keys = {"trusted_keys": "/k"} if self.profile == "masked" else {}
        return disclosures_of(Rules.with_changes(None, {"profile": self.profile, **keys}))

    def nodes(self, shards=SHARDS, owners="ours", **more):
        """New nodes with nothing in their books."""
        self.count += 1
        place = self.folder / str(self.count)
        if self.profile == "masked":
            return signed(place, shards, owners=owners, profile=self.profile, **more)
        own = {"profile": self.profile, "memory_dir": place, **self.beside, **more}
        return [Node(i, rows, **own) for i, rows in enumerate(shards)]

    def product(self, nodes, Z=ALL, frame=None, std=STD):
        """What these nodes tell of C Z in a new run, as much of it as the profile lets through."""
        run = f"run {next(NUMBERS)}"
        for node in nodes:
            node.start()
        if self.profile == "masked":
            return Sums(nodes).product(Z, frame=frame)
        if self.profile == "private":
            return [node.ask("ssi", {**NOISED, "dp.noise": std}, frame, run=run)["Y"] for node in nodes]
        return [node.ask("ssi", {"Z": Z}, frame, run=run)["Y"] for node in nodes]

    def refused(self, words, shards=SHARDS, frame=None):
        with pytest.raises(RefusedError, match=words) as refusal:
            self.product(self.nodes(shards), frame=frame)
        return str(refusal.value)

    def refused_whatever_is_asked(self, words, node, frame=None):
        """No stage that there is gets another answer, without noise or with it; or one with nothing in it."""
        for stage, arrays in every_question(np.shape(node.X)[1]).items():
            for beside in ({}, BUDGET):
                node.start()
                answer = answer_or_words(node, stage, {**arrays, **beside}, frame)
                assert not answer or re.search(f"{words}|{OTHERS}", str(answer["refused"])), (stage, answer)


def no_answer_of_its_own(foe):
    foe.refused_whatever_is_asked("masked-only is set", foe.nodes()[0])


def in_sums_with_two_others_of_its_list(foe):
    no_answer_of_its_own(foe)
    nodes = foe.nodes()
    with pytest.raises(RefusedError, match="min_peers"):
        Sums(nodes[:2])
    with pytest.raises(RefusedError, match="has not signed its keys"):
        Sums([nodes[0], *[Node(i, np.zeros((30, D))) for i in (1, 2)]])
    with pytest.raises(RefusedError, match="trusted_keys"):  # signed with keys that the server has made
        Sums([nodes[0], *foe.nodes(owners="strangers")[1:]])
    with pytest.raises(RefusedError, match="single_masks"):
        Sums(nodes, single=True)


def always_the_same_ones(foe):
    nodes = foe.nodes()
    foe.product(nodes)
    with pytest.raises(RefusedError, match="max-groups and max-dropouts"):
        Sums(nodes[1:]).product(ALL)
    with pytest.raises(RefusedError, match="max-groups and max-dropouts"):
        Sums(nodes).product(ALL, lost=[3])
    nodes = foe.nodes([with_ids(rows) for rows in SHARDS], id_column="patient")
    foe.product(nodes)
    for node, rows in zip(nodes, SHARDS, strict=True):
        node.X = with_ids(np.vstack([rows, RNG.standard_normal((25, D))]))
    with pytest.raises(RefusedError, match="max-groups and max-dropouts"):
        foe.product(nodes[1:])  # Adding people changes nothing.


def rows_stay_as_they_were(foe):
    """From one sum to the next, whatever comes; where answers have noise, for a server to whom it is known."""
    nodes = foe.nodes()
    with noise_known():
        before = np.array(foe.product(nodes, std=9 * STD))
        for changed in (
            *(np.vstack([X, RNG.standard_normal((count, D)) * 9.0]) for count in (1, 19, 20)),
            X[1:],
            2 * X,
        ):
            nodes[0].X = changed
            assert np.abs(np.array(foe.product(nodes, std=9 * STD)) - before).max() < 1e-9


def people_are_added_in_lots(foe):
    """By their ids; and nobody else of the table changes on that day."""
    count = itertools.count()
    shards = [with_ids(rows) for rows in SHARDS]
    nodes = foe.nodes(shards, id_column="patient")
    before = np.array(foe.product(nodes))
    for more, added in ((19, False), (20, True)):
        rows = np.vstack([X + (next(count) == 1), RNG.standard_normal((more, D)) * 9.0])
        nodes[0].X = with_ids(rows)
        moved = np.array(foe.product(nodes)) - before
        new = rows[len(X) :]
        assert error_of(moved, new.T @ new) < 1e-6 if added else np.abs(moved).max() < 1e-9


def with_ids(rows):
    return Table(np.c_[np.arange(len(rows)), rows], ("patient", *"abcdef"))


def only_what_n_means_and_C_say(foe):
    """Two tables of other rows whose statistics are the same: whatever is asked, the same bits."""
    tables = twins(seed=1)
    assert not np.array_equal(*(np.sort(rows, axis=0) for rows in tables))
    if foe.profile == "masked":
        same_sums(foe, tables)
        return
    answered = set()
    for stage, arrays in every_question(TWIN_COLUMNS).items():
        frames = [Frame()] if "opening" in stage else [Frame(), Frame(1e3 * np.arange(1.0, 10.0), np.arange(1.0, 10.0))]
        for frame in frames:
            one, other = (answer_or_words(foe.nodes([rows])[0], stage, arrays, frame, number=1) for rows in tables)
            assert one.keys() == other.keys()
            for name, a in one.items():
                np.testing.assert_array_equal(a, other[name], err_msg=f"{stage} {name}")
            answered |= {stage} - {stage for name in one if name == "refused"}
    assert answered >= {"opening", "ssi", "krylov", "covariance", "evaluate", "uda", "faps"}


def answer_or_words(node, stage, arrays, frame=None, number=None):
    try:
        return node.ask(stage, arrays, frame, number=number, algorithm=algorithm_of(stage))
    except RefusedError as refusal:
        return {"refused": np.array(str(refusal))}


def same_sums(foe, tables):
    others = [RNG.standard_normal((60, TWIN_COLUMNS)) for _ in "12"]
    Z = RNG.standard_normal((TWIN_COLUMNS, 2))
    openings = {"n": (), "single": (), "rows": (), "sums": (TWIN_COLUMNS,), "squares": (TWIN_COLUMNS,)}
    found = []
    for rows in tables:
        nodes = foe.nodes([rows, *others])
        product = Sums(nodes).sum("ssi", {"Z": Z}, {"Y": Z.shape, "n": ()}, {"Y": 1e12, "n": 1e6})
        opening = Sums(nodes, algorithm="krylov").sum("summed_opening", {}, openings, dict.fromkeys(openings, 0.0))
        found.append({**product, **opening})
    for name, a in found[0].items():  # up to the rounding of fixed point, which is drawn again for each sum
        assert np.linalg.norm(a - found[1][name]) <= 1e-10 * np.linalg.norm(a)


def no_number_of_the_server_meets_a_row(foe):
    """Means so large that a row beside them counts or vanishes: bisecting them told single rows."""
    parts = [rounding.drawn_rows(60, i) for i in range(3 if foe.profile == "masked" else 1)]
    bound = np.full((rounding.D, 1), 1e5 * rounding.STEP)
    bound[rounding.COUNT] = 1e7 * 1e3 * rounding.STEP
    bound[[rounding.K, rounding.A, rounding.L]] = 1e60
    nodes = foe.nodes(parts)

    def ask(frame, Z):
        if foe.profile == "open":
            return nodes[0].ask("ssi", {"Z": Z}, frame)["Y"]
        shapes, bounds = {"Y": Z.shape, "n": ()}, {"Y": bound, "n": 2.0**32}
        return Sums(nodes).sum("ssi", {"Z": Z}, shapes, bounds, frame=frame)["Y"]

    rows = np.vstack(parts)
    for query in rounding.QUERIES if foe.profile == "open" else [rounding.by_frame]:
        assert rounding.nearest(partial(rounding.old, parts), rows, query) <= 1e-2
        assert rounding.nearest(ask, rows, query, messages=10) > 0.5


def no_noise(foe):
    for stage, arrays in BOUNDED.items():
        with pytest.raises(RefusedError, match=r"allow_noise is not set|masked-only"):
            foe.nodes()[0].ask(stage, {**arrays, **BUDGET}, algorithm=algorithm_of(stage))
    sums = Sums(foe.nodes())
    with pytest.raises(RefusedError, match="allow_noise is not set"):
        sums.sum("ssi", NOISED, PARTS, {"Y": 1e6, "n": 1e6}, beside={"dp.among": 3})


def only_columns_that_others_have_measured(foe):
    """Whatever stands for the column at the others; one value at all nodes is answered for."""
    for value in (0.0, 2.5, lambda i: float(i == 1)):
        rows = [shard.copy() for shard in SHARDS]
        for i, shard in enumerate(rows):
            if i or callable(value):
                shard[:, -1] = value(i) if callable(value) else value
        foe.refused("have measured column 5, so the sum could reveal the values of a single site", rows)
    for shard in rows:
        shard[:, -1] = 1.0
    assert error_of(foe.product(foe.nodes(rows)), sum(shard.T @ shard for shard in rows)) < 1e-9


NAMES = ("viral load", "body mass", "years", "income", "postcode", "smoker")


def no_names(foe):
    """In nothing that a node says, in answers or refusals; and whether a name is guessed is not said either."""
    nodes = foe.nodes([Table(rows, NAMES, site="Ward Seven") for rows in SHARDS])
    said = [str(nodes[0].client.get_properties({}))]
    for stage, arrays in every_question(D).items():
        for beside in ({}, BUDGET):
            asked = request(stage, {**arrays, **beside}, None, "r", next(NUMBERS), algorithm_of(stage))
            said.append(str(nodes[0].client.fit(*asked)[2]))
    assert not [name for name in (*NAMES, "Ward Seven") if name in "".join(said)]
    right, wrong = (words_of(foe, nodes, Frame(names=(name,))) for name in ("viral load", "no such one"))
    assert right.replace("viral load", "no such one") == wrong != "answered"


def no_names_where_they_are_not_shared(foe):
    no_names(Foe(foe.profile, foe.folder, share_names=False))


PATIENTS = "Patienten der Station"
WORDS = ("Zimmerlunge", "Hautpilz", "Gichtanfall")


def no_cell_and_no_path(foe):
    """From a table and from a file with a column of words: whatever is asked, by whatever names, in no answer."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X[:, :3], columns=["age", "weight", "height"]).assign(diagnose=[*WORDS * 40][: len(X)])
    foe.folder.mkdir(exist_ok=True)
    table.to_csv(path := foe.folder / f"{PATIENTS}.csv", index=False)
    secrets = [PATIENTS, str(foe.folder), *WORDS, *(repr(number)[:9] for number in X[:, :3].ravel().tolist())]
    rules = Rules.with_changes(None, {"profile": foe.profile})
    frames = [
        None,
        *map(asked_by_name, [("age",), ("age", "weight", "height"), ("diagnose",), ("age", "diagnose"), ("none",)]),
    ]
    said, answered = "", 0
    for rows in (node_rows(table, rules), node_rows(sources.make(str(path)), rules)):
        for stage, arrays in every_question(3).items():
            for frame in frames:
                for beside in ({}, BUDGET):
                    asked = request(stage, {**arrays, **beside}, frame, "r", next(NUMBERS), algorithm_of(stage))
                    asked[1]["asks_names"] = True
                    node = foe.nodes([rows])[0]
                    *_, metrics = getattr(node.client, "evaluate" if stage == "evaluate" else "fit")(*asked)
                    answered += "refusal" not in metrics
                    said += "".join(map(str, [*metrics, *metrics.values()]))
    assert answered
    assert not [secret for secret in secrets if secret in said]


def asked_by_name(names):
    return Frame(names=names)


def words_of(foe, nodes, frame):
    """What nodes say to a message about these columns."""
    try:
        foe.product(nodes, ALL[: len(frame.names), :1], frame)
    except RefusedError as refusal:
        return str(refusal)
    return "answered"


def answers_of_its_own(foe):
    with noise_known():
        told = foe.product(foe.nodes())[0]
    if foe.profile == "private":
        short = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
        assert error_of(told, short.T @ short @ ONE) < 0.01
    else:
        assert error_of(told, X.T @ X) < 1e-9


def all_noise_by_this_node_alone(foe):
    """Among peers of the server's own, who take off what they have sent: what is left has all of the noise."""
    left, peers = [], 3
    for _ in range(8):
        invented = [Node(i, np.zeros((30, D))) for i in range(1, peers + 1)]
        left.append(of_the_first([foe.nodes()[0], *invented], NOISED, STD, among=peers // 2 + 1))
    assert np.std(left, axis=0).mean() > 0.6 * STD


def of_the_first(nodes, asked, std, among):
    """The answer of the first of these nodes, as the others see it in a sum with them."""
    parts = {"Y": Part(asked["Z"].shape, Kind.PRODUCT), "n": ROWS}
    bounds = fixed.bounds_with_noise(parts, std / np.sqrt(among), len(nodes))
    drawn, plain = [], noise.add_noise

    def known(a, deviation, bits):
        drawn.append(plain(a, deviation, bits))
        return drawn[-1]

    noise.add_noise = known
    try:
        shapes = {name: part.shape for name, part in parts.items()}
        total = Sums(nodes).sum("ssi", asked, shapes, bounds, beside={"dp.among": among})["Y"]
    finally:
        noise.add_noise = plain
    return total - sum(drawn[1:])


def nothing_by_missing_values(foe):
    """Neither by two fills of the server's, whose difference is a row with a gap, nor by asking for its gaps."""
    rows = np.where(np.arange(X.size).reshape(X.shape) == 7, np.nan, X)
    shards = [rows, *SHARDS[1:]]
    fills = [Frame(fill=np.full(D, fill)) for fill in (0.0, 1e12)]
    if foe.profile == "private":
        short = np.delete(X, 7 // D, axis=0)
        short = short / np.maximum(np.linalg.norm(short, axis=1, keepdims=True), 1.0)
        for frame in (None, Frame(own=True), *fills):
            with noise_known():
                told = foe.product(foe.nodes([rows]), frame=frame)[0]
            assert error_of(told, short.T @ short @ ONE) < 0.01
        return
    for frame in fills:
        foe.refused("fills missing values with its own means only", shards, frame)
    ways = [Frame(None, None, np.full(D, fill), own=True) for fill in (0.0, 1e12)]
    one, other = (foe.product(foe.nodes(shards), frame=frame) for frame in ways)
    np.testing.assert_allclose(one, other, rtol=1e-12)
    asked = {**OPENING, "gaps": True}
    if foe.profile == "open":
        with pytest.raises(RefusedError, match="own means"):
            foe.nodes(shards)[0].ask("opening", asked, algorithm="krylov")
        return
    parts = {"n": (), "single": (), "rows": (), "sums": (D,), "squares": (D,), "count": (D,)}
    sums = Sums(foe.nodes(shards), algorithm="krylov")
    with pytest.raises(RefusedError, match="own means"):
        sums.sum("summed_opening", {"gaps": True}, parts, dict.fromkeys(parts, 0.0))


def where_values_are_missing(foe):
    """A run that would fill gaps by the means of all is refused for a column with gaps, and not for one without."""
    if foe.profile != "open":  # Under masks the node refuses it as well, and its peers know more by its letters.
        return
    rows = np.where(np.arange(D) == 2, np.where(np.arange(len(X))[:, None] % 2, np.nan, X), X)
    for name in "abcdef":
        node = foe.nodes([Table(rows, tuple("abcdef"))])[0]
        answer = answer_or_words(node, "ssi", {"Z": ONE[:1]}, Frame(fill=np.zeros(1), names=(name,)))
        assert ("refused" in answer) == (name == "c")
    # Of a code, the variance tells how many values there are.
    code = np.where(np.arange(len(X)) < 60, np.arange(len(X)) % 2 * 1.0, np.nan)
    told = foe.nodes([np.c_[X[:, 1:], code]])[0].ask("opening", OPENING, Frame(own=True), algorithm="krylov")
    mean = told["mean"][-1]
    assert round(told["m2"][-1] / (mean * (1.0 - mean))) == 60


def nothing_of_single_people_by_columns(foe):
    """The scores of each person are what such a run tells: whatever the stage, and however columns are prepared."""
    Q = np.linalg.qr(RNG.standard_normal((len(X), 2)))[0]
    asked, nodes = every_question(len(X)) | {"loadings": {"U": Q}}, foe.nodes()
    for split in (
        ColumnPreparation(),
        ColumnPreparation(center=False),
        ColumnPreparation(scale="std"),
        ColumnPreparation(gaps=True, salt="x"),
    ):
        frame = Frame(split=split)
        for stage, arrays in asked.items():
            with pytest.raises(
                RefusedError, match=f"split_columns is not set|masked-only is set|{OTHERS}|only with noise"
            ):
                nodes[0].ask(stage, arrays, frame, algorithm=algorithm_of(stage))
        with pytest.raises(RefusedError, match="split_columns is not set"):
            foe.product(nodes, frame=frame)


def nothing_of_fewer_rows(foe):
    """Nor how many there are."""
    few = [rows[:19] for rows in SHARDS]
    assert not re.search(r"\b19\b", foe.refused("fewer rows than its min_rows, 20|20 rows for its first answer", few))
    if foe.profile == "masked":
        foe.refused("20 rows for its first answer", [X[:0], *SHARDS[1:]])
    foe.refused_whatever_is_asked(
        "fewer rows than its min_rows, 20|20 rows for its first answer|masked-only is set|only with noise",
        foe.nodes(few)[0],
    )


def zeros_of_no_rows(foe):
    """A masked sum with a node without rows is that of the others; every other message is refused."""
    nothing_of_fewer_rows(foe)
    foe.refused_whatever_is_asked("has no rows", foe.nodes([X[:0]])[0])
    nodes = [Node(i, rows, profile="open", memory_dir=foe.folder) for i, rows in enumerate((X[:0], *SHARDS[1:3]))]
    others = sum(rows.T @ rows for rows in SHARDS[1:3])
    assert error_of(Sums(nodes).product(ALL), others) < 1e-9


def nothing_of_rare_columns(foe):
    """Of columns whose rest is a constant, or is missing; a few that differ are as good as a few that have a value."""
    for few in (1, 19):
        here = np.arange(len(X)) < few
        for values in (here, ~here, np.where(here, 7.0, np.nan)):
            rare = np.c_[X[:, 1:], values]
            foe.refused("A column of this node reveals fewer rows", [rare, *SHARDS[1:]])
            if few == 19 and not np.isnan(values).any():
                half = (np.arange(len(X)) < 50) * 1.0
                foe.refused(
                    "A column of this node reveals fewer rows", [np.c_[X[:, 2:], half, half != values], *SHARDS[1:]]
                )
            if foe.profile == "open":
                foe.refused_whatever_is_asked("A column of this node reveals fewer rows", foe.nodes([rare])[0])


def epsilon_over_all_runs(foe):
    """Whatever runs are called and ask for, and however much budget they name."""
    node, answers, ways = foe.nodes()[0], 0, list(BOUNDED.items())

    def once_more():
        node.start()
        stage, arrays = ways[answers % 2]
        node.ask(stage, {**arrays, **BUDGET}, run=f"r{answers}", algorithm=algorithm_of(stage))

    while epsilon_of(np.sqrt(answers + 1) / STD, 1e-6) <= 1.0:
        once_more()
        answers += 1
    assert answers > 1
    with pytest.raises(RefusedError, match="max_epsilon"):
        once_more()
    for budget in ({"dp.budget": 1e9}, {"dp.noise": 1e-3}, {"dp.noise": 0.0}, {"dp.clip": 1e6}):
        with pytest.raises(
            RefusedError, match=r"budget is larger than|would spend|message with noise must have|noise is too small"
        ):
            foe.nodes()[0].ask("ssi", {**NOISED, **budget})


def nothing_without_noise(foe):
    node = foe.nodes()[0]
    for stage, arrays in every_question(D).items():
        answer = answer_or_words(node, stage, arrays)
        assert re.search(f"only with noise|asks for noise|{OTHERS}", str(answer["refused"])), (stage, answer)


def no_row_moves_an_answer_by_more_than_its_clip(foe):
    """For a server to whom the noise is known; and what is no number of the answer does not move at all."""
    for stage, arrays in BOUNDED.items():
        told, beside = [], []
        for rows in (X, np.vstack([X, ROW]), np.vstack([X, -ROW])):
            asked = request(stage, {**arrays, **BUDGET}, algorithm=algorithm_of(stage))
            with noise_known():
                answer, n, metrics = foe.nodes([rows])[0].client.fit(*asked)
            assert "refusal" not in metrics, (stage, metrics)
            told.append(np.concatenate([np.ravel(a) for a in answer]))
            beside.append((n, {name: str(value) for name, value in metrics.items()}))
        assert max(np.linalg.norm(told[i] - told[0]) for i in (1, 2)) <= 1.0 + 1e-9
        assert np.linalg.norm(told[1] - told[2]) > 0.0 or stage in ("ssi", "krylov", "covariance")
        assert beside[0] == beside[1] == beside[2]


def its_answers_have_the_noise_that_is_said(foe):
    told = [foe.product(foe.nodes([X]))[0] for _ in range(12)]
    assert np.std(told, axis=0).mean() > 0.7 * STD


def nothing_read_from_the_rows_decides(foe):
    """Few rows, none, text in a cell, a gap, infinity, rare codes: the same shapes, numbers of rows and words."""
    pd = pytest.importorskip("pandas")
    names = [*"abcdef"]
    spoilt = {}
    for cell in ("text", np.nan, np.inf, -np.inf, 1e300, "1e400", None):
        table = pd.DataFrame(X, columns=names).astype(object)
        table.iloc[3, 2] = cell
        spoilt[str(cell)] = table
    spoilt |= {f"{count} rows": pd.DataFrame(X[:count], columns=names) for count in (0, 1, 5, 6, 19, 20)}
    spoilt["a rare code"] = pd.DataFrame(np.c_[X[:, 1:], np.arange(len(X)) == 0], columns=names).astype(float)
    plain = pd.DataFrame(X, columns=names)
    for stage, arrays in every_question(D).items():
        for beside in ({}, BUDGET):
            expected = said_of(foe, plain, stage, {**arrays, **beside})
            for how, table in spoilt.items():
                assert said_of(foe, table, stage, {**arrays, **beside}) == expected, (stage, how)


def said_of(foe, table, stage, arrays):
    """All that a new node says but for the numbers of its answer."""
    node = foe.nodes([table])[0]
    asked = request(stage, arrays, None, "r", 0, algorithm_of(stage))
    if stage == "evaluate":
        return node.client.evaluate(*asked)
    answer, n, metrics = node.client.fit(*asked)
    return [(a.shape, a.dtype) for a in answer], n, {name: str(value) for name, value in metrics.items()}


CLAIMS = {
    "The server can learn only what follows from the number": (only_what_n_means_and_C_say, no_noise),
    "The server sees answers of this node only in sums": (in_sums_with_two_others_of_its_list, always_the_same_ones),
    "The rows of this node stay as they were": (rows_stay_as_they_were, people_are_added_in_lots),
    "This node answers only for columns that at least 2": (only_columns_that_others_have_measured,),
    "All answers that the ledger of this node counts": (
        epsilon_over_all_runs,
        nothing_without_noise,
        no_row_moves_an_answer_by_more_than_its_clip,
        its_answers_have_the_noise_that_is_said,
        nothing_by_missing_values,
        no_names,
    ),
    "Nothing that this node reads from its rows": (nothing_by_missing_values, nothing_read_from_the_rows_decides),
    "The server sees only sums over this node and at least 2": (in_sums_with_two_others_of_its_list,),
    "The server sees this node's own answers": (answers_of_its_own,),
    "Answers have no noise: this node refuses": (no_noise,),
    "This node answers only runs with noise": (nothing_without_noise, all_noise_by_this_node_alone),
    "A row with a cell that is not a finite number": (nothing_by_missing_values, nothing_read_from_the_rows_decides),
    "The server sees the names of this node's columns": (no_names_where_they_are_not_shared, no_cell_and_no_path),
    "The server sees how many columns this node has": (no_names,),
    "This node refuses runs whose parties": (nothing_of_single_people_by_columns,),
    r"If this node has fewer than 20 rows, it refuses every message\. The": (nothing_of_fewer_rows,),
    "If this node has fewer than 20 rows, it refuses every message. Without": (zeros_of_no_rows,),
    "This node measures statistics of its rows": (only_what_n_means_and_C_say, no_number_of_the_server_meets_a_row),
    "This node fills missing values with its own means": (nothing_by_missing_values, where_values_are_missing),
    "In all runs together, this node is in sums over at most 1 group": (always_the_same_ones,),
    "No run gets a column in which some rows, but fewer than 20": (nothing_of_rare_columns,),
    "If a column of codes is a linear function": (nothing_of_rare_columns,),
    "This node answers from its rows as they were": (rows_stay_as_they_were,),
    "In all runs that one ledger counts": (epsilon_over_all_runs, no_row_moves_an_answer_by_more_than_its_clip),
}


def claims(profile):
    """The plays of the sentences that a profile is printed with."""
    page = Foe(profile, None).page()
    for sentence in (*page.profile, *page.seen, *page.lasting):
        (found,) = [played for start, played in CLAIMS.items() if re.match(start, sentence)]
        yield from found


PLAYS = dict.fromkeys(play for plays in CLAIMS.values() for play in plays)


@pytest.mark.slow
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
@every("profile", SETS)
def test_a_sentence_of_a_profile_holds(profile, play, tmp_path):
    if play in claims(profile):
        play(Foe(profile, tmp_path / profile))


def test_a_node_says_at_start_what_it_runs_and_what_its_own_rules_give_up(caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="flwr"):
        Node(0, X, profile="private", memory_dir=tmp_path)
        assert "This node runs the profile private. All answers that the ledger" in caplog.text
        assert "weaker than" not in caplog.text
        Node(0, X, profile="private", memory_dir=tmp_path, max_epsilon=3.0, min_rows=50)
        assert "With max_epsilon=3.0 instead of 1.0, the answers can reveal more about single rows." in caplog.text
        assert "min_rows" not in caplog.text
        Node(0, X, profile="private", memory_dir=tmp_path, on_small_change="refuse", allow_sparse_columns=True)
        assert "on_small_change" not in caplog.text  # The rule does not affect answers there.
    found = promises.weaker_rules(
        Rules.with_changes(None, {"profile": "masked", "trusted_keys": "/k", "on_small_change": "refuse"})
    )
    assert "the server learns when rows of the file have changed" in found["on_small_change"]


def test_rules_given_beside_take_the_place_of_the_profiles():
    rules = Rules.with_changes(Rules(min_rows=50), {"profile": "masked", "trusted_keys": "/k"})
    assert (rules.min_rows, rules.min_change, rules.profile) == (50, 50, "masked")
    rules = Rules.with_changes(Rules(min_rows=50), {"profile": "private"})
    assert (rules.min_rows, rules.min_change, rules.max_epsilon, rules.profile) == (50, None, 1.0, "private")
    assert Rules.with_changes(rules, {"max_epsilon": 2.0}).profile == "private"
    assert Rules.of_node_config({"profile": "open", "allow": "krylov"}).allow == ["krylov"]
