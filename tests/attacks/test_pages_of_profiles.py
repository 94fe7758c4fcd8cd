"""Test the page of `flower-pca rules` for a profile: what runs reveal, what is refused, what is left open.

What a line about algorithms says is held against references that are worked out from the rows: no array of an answer is
anything else, and each thing that it names does come out. What it says in general terms, as "a matrix with a row for
each column, computed step by step from C", is a function of n, the means and C: two tables that have these in common
give the same bits.
"""

import functools
import re

import numpy as np
import pytest
from builders import clipped
from cases import every
from dishonest import Node, RefusedError, Sums, error_of
from fake_grid import ArrayRecord, ClientApp, Context, Message, RecordDict, in_a_run
from scipy import optimize
from test_profiles import BUDGET, CLAIMS, OPENING, ROW, SHARDS, Foe, X, noise_known
from twins import twins

from flower_pca import assembly, client_half, make, registry
from flower_pca.algorithms.covariance import unpack_triangle
from flower_pca.cli import main
from flower_pca.clients.policy.profiles import SETS
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.core.drive import rounds
from flower_pca.core.kinds import Kind
from flower_pca.layers import NOISE
from flower_pca.masking import messages
from flower_pca.rows import combat
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards
from flower_pca.stages.opening import block_of_message

pytestmark = pytest.mark.usefixtures("home")
A, B = twins(seed=3)
D = A.shape[1]
BESIDE = [twins(seed=seed)[0] for seed in (4, 5)]  # tables that share components
CLIP = 40.0


class Told:
    """One array of an answer, and what it was an answer to; of several nodes their sum."""

    def __init__(self, tables, sent, frame, layers, answer, name, of):
        self.sent, self.answer, self.name, self.of, self.a = sent, answer, name, of, np.asarray(answer[name])
        self.tables = [(X - (0 if frame.mean is None else frame.mean)) / self.scale(frame) for X in tables]
        if NOISE in layers:
            self.tables = [clipped(X, float(layers[NOISE]["clip"])) for X in self.tables]

    @staticmethod
    def scale(frame):
        return 1.0 if frame.scale is None else frame.scale

    def sum(self, of_one):
        return sum(of_one(X) for X in self.tables)

    def near(self, true):
        size = np.linalg.norm(true)
        return np.linalg.norm(self.a - true) <= 1e-7 * (size if size > 1.0 else size > 0.0)

    @property
    def C(self):
        return self.sum(lambda X: X.T @ X)

    @property
    def n(self):
        return self.sum(len)

    @property
    def block(self):
        """What a product is made with: of the message, or of the answer."""
        by_name = {**self.sent, **self.answer}
        return by_name[self.of] if self.of in by_name else next(Z for Z in self.sent.values() if Z.ndim == 2)


def by_column(told):
    """Mean, or sums; squared deviations, or squares."""
    about = told.sent.get("reference", np.zeros(D))
    true = {
        "mean": lambda X: X.mean(axis=0),
        "m2": lambda X: np.sum((X - X.mean(axis=0)) ** 2, axis=0),
        "sums": lambda X: (X - about).sum(axis=0),
        "squares": lambda X: np.sum((X - about) ** 2, axis=0),
    }
    return told.near(told.sum(true[told.name]))


def local_product(told):
    def own(X):
        about = told.sent.get("reference", X.mean(axis=0))
        return (X - about).T @ ((X - about) @ block_of_message(told.sent, D))

    return told.near(told.sum(own))


def residual(told):
    Z = told.sent["Z"]
    return told.near(told.sum(lambda X: np.sum((X - X @ Z @ Z.T) ** 2)))


def leading_of(told):
    leading = np.linalg.eigh(told.C)[1][:, ::-1][:, : told.a.shape[1]]
    return np.linalg.norm(told.a - leading @ (leading.T @ told.a)) < 1e-6


def eigenvalues(told):
    leading = np.linalg.eigvalsh(told.C)[::-1] / told.n
    return told.near(leading[: told.a.size].reshape(told.a.shape))


def moved(told, C):
    """What some steps from the block of the server's lead to."""
    block = told.sent["Z"]
    for _ in range(int(told.sent["steps"]) - 1):
        block = np.linalg.qr(C @ block)[0]
    return block


def basis_near_them(told):
    block = moved(told, told.C)
    return np.linalg.norm(told.a - block @ (block.T @ told.a)) < 1e-6


def image(told):
    """Of each node by a basis of its own, whose signs are as the node has them; so of their sum the size."""
    return told.a.shape == told.sent["Z"].shape and np.linalg.norm(told.a) <= told.sum(
        lambda X: np.linalg.norm(X.T @ X @ moved(told, X.T @ X)) * (1 + 1e-9)
    )


def factor(told):
    """R of X Z = Q R."""
    return error_of(told.a.T @ told.a, told.block.T @ told.C @ told.block) < 1e-7


def lifted(told):
    """X'Q T for X block = Q R: C block R^-1 T, of C alone."""
    block = told.sent["block"]
    R = np.linalg.cholesky(block.T @ told.C @ block).T
    Q = told.C @ block @ np.linalg.inv(R)
    fits = np.linalg.lstsq(Q, told.a, rcond=None)[0]
    return error_of(Q @ fits, told.a) < 1e-6


def whole_number(told):
    return bool((told.a == np.rint(told.a)).all()) and 0 <= told.a.min() <= told.a.max() <= told.n * D


def moments_of(told):
    """Count, sums and squares, each in a unit of its own."""
    (X,) = told.tables
    return told.near(np.array([len(X), *X.sum(axis=0) / CLIP, np.sum(X**2) / CLIP**2]) * CLIP**2 / np.sqrt(3))


def a_figure(told):
    return told.a.size == 1 and np.isfinite(told.a).all()


def a_matrix(told):
    return told.a.ndim == 2 and np.isfinite(told.a).all()


HOLDS = {  # For each array of an answer: a check that it is what the page says
    "the number of rows": lambda told: told.near(told.n),
    "numbers of clients, or of entries that meet a condition": whole_number,
    "single numbers such as a weight or a step size": a_figure,
    "the sum of squares of the rows outside a basis that the server chooses": residual,
    "a mean of squares of the rows, or of their parts outside the span of a basis": a_figure,
    "the mean and the sum of squared deviations of each column": by_column,
    "the number, the sums and the squares of clipped rows": moments_of,
    "C Z": lambda told: told.near(told.C @ told.block),
    "C Z with the rows centered at the node's own mean": local_product,
    "a basis near the leading eigenvectors of C": basis_near_them,
    "C times a basis near the leading eigenvectors of C": image,
    "all of C at once": lambda told: (
        told.near(told.C[np.triu_indices(D)]) or error_of(unpack_triangle(told.a), told.C) < 1e-7
    ),
    "the leading eigenvectors of C": leading_of,
    "the leading eigenvalues of C": eigenvalues,
    "Z'CZ": lambda told: error_of(told.a.T @ told.a, told.block.T @ told.C @ told.block) < 1e-7,
    "C times the directions that Z spans": lifted,
    "a matrix with a row for each column, computed step by step from C or from the rows": a_matrix,
    "the largest absolute value of each column, which is one true entry": lambda told: told.near(
        told.sum(lambda X: np.abs(X).max(axis=0))
    ),
}
Z = np.linalg.qr(np.random.default_rng(7).standard_normal((D, 2)))[0]
WEIGHTED = {"rank": np.array(2), "weighted": np.array(1)}
# messages that a server can send under an algorithm's name, but that no run sends
BEYOND = {
    **{name: [(name, WEIGHTED)] for name in ("uda", "dist_pca", "median_pca")},
    "local_power": [("local_power", {"Z": Z, "steps": np.array(2), "aligned": np.array(0)})],
    "covariance": [("ritz", {"Z": Z})],
}


@functools.cache
def honest_course(name, profile):
    """What an honest run of an algorithm asks of its clients, and in the open what else a server can ask for: stage,
    arrays, frame, layers.
    """
    course = [*messages_of_a_run(name, profile)]
    if profile == "open":
        course += [(*message, Frame(), {}) for message in BEYOND.get(name, ())]
        if name not in registry.EXTRA_STAGES:
            width = np.array(0 if name in registry.OPENING_ONLY else 2)
            course.append(("opening", {"peaks": np.array(1), "seed": np.array(0), "width": width}, Frame(), {}))
    return course


def messages_of_a_run(name, profile):
    masked = profile == "masked"
    more = (
        {"dp": f"dp(epsilon=0.9, delta=1e-6, clip={CLIP})"} if profile == "private" else {"reconstruction_error": True}
    )
    if name in registry.OPENING_ONLY:
        run = assembly.standardizing(mask=masked)
    elif name in registry.EXTRA_STAGES:
        run = assembly.run(assembly.config("exact_per_pca(max_rounds=3)", n_components=name, mask=masked))
    else:
        short = {"max_rounds": 3} if hasattr(make(name), "max_rounds") else {}
        spec = "per_pca(eta=0.1)" if masked and name == "per_pca" else name
        run = assembly.run(assembly.config(spec, n_components=2, mask=masked, **short, **more))
    for message in rounds(run, Shards([LocalData(rows) for rows in (A, *BESIDE)])):
        arrays = message.arrays_for(0)
        stage = messages.inner_stage(arrays) or message.stage
        if stage != messages.STAGE and (name not in registry.EXTRA_STAGES or stage == name):
            yield stage, messages.stage_arrays(arrays), message.frame, message.layers


def seen_by_the_server(foe, name, rows):
    """What the server sees of a node with these rows, message by message."""
    nodes = foe.nodes([rows, *BESIDE])
    sums = Sums(nodes, algorithm=name) if foe.profile == "masked" else None
    for number, (stage, arrays, frame, layers) in enumerate(honest_course(name, foe.profile)):
        parts = registry.STAGES[stage].parts(arrays, D)
        if sums is not None:
            shapes = {part: which.shape for part, which in parts.items()}
            answer = sums.sum(stage, arrays, shapes, dict.fromkeys(shapes, 0.0), frame=frame)
        else:
            answer = nodes[0].ask(stage, arrays, frame, number=number, algorithm=name, layers=layers)
        answer = {part: a for part, a in answer.items() if part in parts}  # the metrics of an evaluation
        yield arrays, frame, layers, parts, answer


def what_is_served(foe):
    """Line by line of the page, and algorithm by algorithm."""
    page = foe.page()
    common = set(page.served["any algorithm"].split("; "))
    for name, words in page.served.items():
        if name != "any algorithm":
            due = set(words.split("; ")) | (common if name in registry.ALGORITHMS else set())
            # a closing message, which a run of covariance does not need
            spare = {"C Z"} if name == "covariance" and foe.profile != "open" else set()
            assert brought_out(foe, name) | spare == due - {"nothing more"}, name


def brought_out(foe, name):
    tables = (A, *BESIDE) if foe.profile == "masked" else (A,)
    found = set()
    with noise_known():
        other = seen_by_the_server(foe, name, A if foe.profile == "private" else B)
        for (sent, frame, layers, parts, answer), (*_, twin) in zip(
            seen_by_the_server(foe, name, A), other, strict=True
        ):
            for part, a in answer.items():
                a = np.asarray(a)
                if foe.profile == "masked":
                    np.testing.assert_allclose(a, twin[part], rtol=1e-9, atol=1e-9 * np.abs(a).max(initial=0.0))
                elif parts[part].kind is not Kind.PEAKS:
                    np.testing.assert_array_equal(a, twin[part])
                if parts[part].own and foe.profile != "masked":
                    assert not a.any(), (name, part)
                elif a.size and not (foe.profile == "private" and parts[part].kind.counts_rows):
                    words = parts[part].kind.tells
                    told = Told(tables, sent, frame, layers, answer, part, parts[part].of)
                    assert HOLDS[words](told), (name, part, words)
                    found.add(words)
    return found


WORDS = {  # the words of a refusal, by the sentence of the page
    "Answers compare single rows, so the rule allow must name the algorithm.": "compare single rows",
    "Answers cannot be summed, and masked_only requires sums.": "would reveal a node's own results",
    "Noise cannot cover the answers, and the rules require noise.": "only with noise|asks for noise|have no bound",
}
FIRST = {  # other refusals that may come first
    "open": "allow_noise is not set",
    "masked": "allow_noise is not set|masked-only is set",
    "private": "only with noise|have no bound",
}


def what_is_not_served(foe, genuine_messages):
    """No message of a run of it, whatever algorithm it names; with noise, without, and under masks."""
    page = foe.page()
    rows = [np.random.default_rng(i).standard_normal((60, 8)) for i in range(3)]
    nodes = foe.nodes(rows)
    for name, why in page.refused.items():
        asked = [
            (named, stage, arrays)
            for (algorithm, stage), kept in genuine_messages.items()
            for arrays in kept
            for named in {algorithm, "krylov"}
            if name == stage or (name == named and "compare" in why)
        ]
        assert asked, name
        for named, stage, arrays in asked:
            for beside in ({}, BUDGET):
                with pytest.raises(RefusedError, match=f"{WORDS[why]}|{FIRST[foe.profile]}") as refusal:
                    nodes[0].ask(stage, {**arrays, **beside}, algorithm=named)
            if foe.profile == "masked":
                refused_in_a_sum(nodes, stage, arrays, named, WORDS[why])
            elif foe.profile == "open":
                assert re.search(WORDS[why], str(refusal.value)) or beside


def refused_in_a_sum(nodes, stage, arrays, named, words):
    parts = registry.STAGES[stage].parts(arrays, 8)
    shapes = {part: tuple(side or 0 for side in which.shape) for part, which in parts.items()}
    with pytest.raises(RefusedError, match=words):
        Sums(nodes, algorithm=named).sum(stage, arrays, shapes, dict.fromkeys(shapes, 0.0))


def product_of_all_nodes(foe, rows, *block, **more):
    """What the server gets of all nodes with these rows together, under masks or not."""
    told = np.array(foe.product(foe.nodes(rows), *block, **more))
    return np.sum(told, axis=tuple(range(foe.profile != "masked")))


def all_of_C_and_rows_up_to_a_rotation(foe):
    """Under masks the C of all nodes; which is that of none."""
    told, wide = foe.product(foe.nodes()), np.random.default_rng(3).standard_normal((25, 40))
    if foe.profile == "masked":
        assert error_of(told, sum(rows.T @ rows for rows in SHARDS)) < 1e-9
        assert min(error_of(told, rows.T @ rows) for rows in SHARDS) > 0.5
        return
    assert all(error_of(one, rows.T @ rows) < 1e-9 for one, rows in zip(told, SHARDS, strict=True))
    (C,) = foe.product(foe.nodes([wide]), np.eye(40))
    values, vectors = np.linalg.eigh(C)
    rows = np.sqrt(values[-25:])[:, None] * vectors[:, -25:].T
    U, _, V = np.linalg.svd(wide @ rows.T)
    assert error_of(U @ V @ rows, wide) < 1e-6


def one_true_entry(foe):
    told = foe.nodes()[0].ask("opening", {**OPENING, "peaks": True}, algorithm="krylov")["peak"]
    assert all(entry in np.abs(column) for entry, column in zip(told, X.T, strict=True))


def what_changes(foe):
    node = foe.nodes()[0]
    before = node.ask("opening", OPENING, algorithm="krylov", run="before")
    node.X = np.vstack([X, ROW])
    node.start()
    after = node.ask("opening", OPENING, algorithm="krylov", run="after")
    assert error_of(after["n"] * after["mean"] - before["n"] * before["mean"], ROW[0]) < 1e-6


def the_app_reads_what_the_user_can_read(foe):
    """Code of the server's in place of ours: no rule of the node-config is so much as looked at."""
    foe.folder.mkdir(exist_ok=True)
    np.save(path := foe.folder / "rows.npy", X)
    path.chmod(0o600)
    foes = ClientApp()

    @foes.train()
    def read(message, context):
        return Message(RecordDict({"rows": ArrayRecord([np.load(context.node_config["data"])])}), reply_to=message)

    own = Context(1, 7, {"data": str(path), "profile": foe.profile}, RecordDict(), {})
    with in_a_run():
        told = foes(Message(RecordDict(), dst_node_id=7, message_type="train"), own).content["rows"]
    np.testing.assert_array_equal(next(iter(told.values())).numpy(), X)


def a_person_in_a_combination_of_columns(foe):
    """A total is the sum of its parts for all but one."""
    rows = [shard.copy() for shard in SHARDS]
    for shard in rows:
        shard[:, -1] = shard[:, 0] + shard[:, 1]
    rows[0][0, -1] += 1.0
    told = product_of_all_nodes(foe, rows)
    assert error_of(told[:, -1] - told[:, 0] - told[:, 1], rows[0][0]) < 1e-6


def a_person_with_a_value_far_beyond_all_others(foe):
    """The products of that column are nearly this person's row."""
    rows = [shard.copy() for shard in SHARDS]
    rows[0][0, -1] = 1e6
    nodes = foe.nodes(rows)
    if foe.profile == "masked":
        told = Sums(nodes).sum("ssi", {"Z": np.eye(6)}, {"Y": (6, 6), "n": ()}, {"Y": 1e16, "n": 1e6})["Y"]
    else:
        told = np.sum(foe.product(nodes), axis=0)
    assert error_of(told[:-1, -1] / 1e6, rows[0][0, :-1]) < 0.01


def a_person_in_codes_by_fractions(foe):
    """Two codes times 1 and the square root of 2 are a third one, for all but one person."""
    rows = [shard.copy() for shard in SHARDS]
    for shard in rows:
        shard[:, 2], shard[:, 3] = np.arange(len(shard)) % 2, np.arange(len(shard)) % 3
        shard[:, 4] = shard[:, 2] + np.sqrt(2.0) * shard[:, 3]
    rows[0][0, 4] += 1.0
    told = product_of_all_nodes(foe, rows)
    assert error_of(told[:, 4] - told[:, 2] - np.sqrt(2.0) * told[:, 3], rows[0][0]) < 1e-6


def a_person_in_codes_that_are_not_found(foe):
    """Also by whole numbers, in a table of fewer rows than columns of codes."""
    a_person_in_codes_by_fractions(foe)
    rng = np.random.default_rng(0)
    rows = [np.column_stack([rng.standard_normal(100), rng.random((100, 120)) < 0.5]) for _ in SHARDS]
    for codes in rows:
        codes[:, 3] = codes[:, 1] + codes[:, 2]
    rows[0][0, 3] += 1.0
    told = product_of_all_nodes(foe, rows, np.eye(121))
    assert error_of(told[:, 3] - told[:, 1] - told[:, 2], rows[0][0]) < 1e-6


def harmonized(n, means, variances, grand, sigma):
    """The sums of a node's rows and of their squares, once it has standardized them as harmonized runs do."""
    own = combat.site_effect(n, (means - grand) / sigma, variances / sigma**2)
    left = (means - sigma * own.location) / np.sqrt(own.scale) + (1.0 - 1.0 / np.sqrt(own.scale)) * grand
    return np.concatenate([n * left, (n - 1.0) * variances / own.scale + n * left**2])


def each_node_by_harmonized_sums(foe):
    """The number of rows, means and variances of every node, for a server that knows them roughly before."""
    rng = np.random.default_rng(2)
    rows = [
        rng.standard_normal((60 + 11 * i, 3)) * rng.uniform(0.7, 1.5, 3) + rng.normal(0.0, 0.7, 3) for i in range(3)
    ]
    asked = [(rng.normal(0.0, 1.0, 3), np.exp(rng.normal(0.0, 0.7, 3))) for _ in range(12)]
    sums, shapes = Sums(foe.nodes(rows), algorithm="krylov"), dict.fromkeys(("n", "single", "rows"), ())
    shapes |= {"sums": (3,), "squares": (3,)}
    told = []
    for grand, sigma in asked:
        numbers = {"covariates": 0, "slopes": np.zeros((0, 3)), "grand": grand, "sigma": sigma}
        frame = Frame(covariates=Covariates(names=()))
        answer = sums.sum("harmonized_summed_opening", numbers, shapes, dict.fromkeys(shapes, 0.0), frame=frame)
        told.append(np.concatenate([answer["sums"], answer["squares"]]))

    def numbers_of(guess):
        counts, means, variances = np.split(guess, [3, 12])
        return zip(np.exp(counts), means.reshape(3, 3), np.exp(variances.reshape(3, 3)), strict=True)

    def missed(guess):
        found = [sum(harmonized(*node, *numbers) for node in numbers_of(guess)) for numbers in asked]
        return np.ravel(np.array(found) - told)

    true = np.concatenate(
        [
            np.log([len(X) for X in rows]),
            np.ravel([X.mean(axis=0) for X in rows]),
            np.ravel([np.log(X.var(axis=0, ddof=1)) for X in rows]),
        ]
    )
    found = optimize.least_squares(missed, true + rng.normal(0.0, 0.1, len(true)), xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    assert np.abs(found - true).max() < 1e-6


def rows_with_root(root):
    """72 rows X with X'X = root root'."""
    return np.vstack([root.T, -root.T] * 12) / np.sqrt(24.0)


def each_node_by_personalized_sums(foe):
    """C of a node, but for a multiple of the identity, for a server that knows it roughly before."""
    rng = np.random.default_rng(0)
    roots = [np.tril(rng.standard_normal((3, 3))) + np.diag([3.0, 2.0, 1.0]) for _ in "123"]
    rows = [
        np.vstack([root.T / np.sqrt(2.0 * n)] * n + [-root.T / np.sqrt(2.0 * n)] * n)
        for n, root in enumerate(roots, 12)
    ]
    blocks = [np.linalg.qr(rng.standard_normal((3, 1)))[0] for _ in range(14)]
    asked = [{"U": U, "b": U, "own": 1, "samples": False, "steps": 0} for U in blocks]
    shapes = {part: which.shape for part, which in registry.STAGES["exact_per_pca"].parts(asked[0], 3).items()}
    nodes = foe.nodes(rows)
    told = []
    for arrays in asked:  # each in a run of its own, because nodes begin with the own components of their last answer
        sums = Sums(nodes, algorithm="exact_per_pca")
        told.append(sums.sum("exact_per_pca", arrays, shapes, dict.fromkeys(shapes, 1e4))["Z"])
    lower = np.tril_indices(3)

    def of(guess):
        for entries in np.split(guess, 3):
            root = np.zeros((3, 3))
            root[lower] = entries
            yield root

    def missed(guess):
        tables = [LocalData(rows_with_root(root)) for root in of(guess)]
        arrays = [{name: np.asarray(a) for name, a in one.items()} for one in asked]
        found = [sum(client_half.answer("exact_per_pca", one, rows, {})[0]["Z"] for rows in tables) for one in arrays]
        return np.ravel(np.array(found) - told)

    true = np.concatenate([root[lower] for root in roots])
    found = optimize.least_squares(missed, true + rng.normal(0.0, 0.02, 18), xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    apart = [one @ one.T - other @ other.T for one, other in zip(of(found), of(true), strict=True)]
    assert min(np.abs(C - np.trace(C) / 3.0 * np.eye(3)).max() for C in apart) < 1e-6


def each_node_by_sums_that_are_not_of_products(foe):
    each_node_by_harmonized_sums(foe)
    each_node_by_personalized_sums(foe)


def products_of_two_columns(foe):
    """The product of two codes counts who has both; that of two measurements may be one person's."""
    codes = [
        np.column_stack([shard[:, :-2], *(np.arange(len(shard)) % 6 < 3, np.arange(len(shard)) % 4 < 2)])
        for shard in SHARDS
    ]
    told = product_of_all_nodes(foe, codes)
    assert round(told[-2, -1]) == sum(np.count_nonzero(shard[:, -2:].all(axis=1)) for shard in codes)
    gaps = [shard - shard.mean(axis=0) for shard in SHARDS]
    for i, shard in enumerate(gaps):
        shard[50:, -2], shard[: 50 - (i == 0), -1] = np.nan, np.nan
    means = np.array([np.nanmean(shard, axis=0) for shard in gaps])
    told = product_of_all_nodes(foe, gaps, frame=Frame(own=True))
    person = gaps[0][49, -2:] - means[0, -2:]
    apart = sum(len(shard) * np.prod(own[-2:]) for shard, own in zip(gaps, means, strict=True))
    assert error_of(told[-2, -1] - apart, np.prod(person)) < 1e-6


def combinations_of_one_node(foe):
    """A total that is the sum of its parts at all nodes but the first."""
    rows = [shard.copy() for shard in SHARDS]
    for shard in rows[1:]:
        shard[:, -1] = shard[:, 0] + shard[:, 1]
    told = foe.product(foe.nodes(rows))
    total = np.zeros(told.shape[1])
    total[[-1, 0, 1]] = 1.0, -1.0, -1.0
    assert error_of(told @ total, rows[0].T @ rows[0] @ total) < 1e-6


def again_in_another_folder(foe):
    """As much as a node tells under its rules, it tells again with another folder for its memory."""
    nodes = foe.nodes()
    foe.product(nodes)
    folder = {"memory_dir": foe.folder / "other"}
    foe.product([Node(node.key, node.X, **{**node.rules, **folder}) for node in nodes][:3])


LEFT_OPEN = {
    "If one person has a value far beyond all others": a_person_with_a_value_far_beyond_all_others,
    "If one person differs from all others in a combination with a column": a_person_in_a_combination_of_columns,
    "If one person differs from all others in a combination of three": a_person_in_codes_that_are_not_found,
    "If a run harmonizes sites or looks": each_node_by_sums_that_are_not_of_products,
    "For every two columns, C holds the sum": products_of_two_columns,
    "If a combination of columns has the same value": combinations_of_one_node,
    "With another memory_dir": again_in_another_folder,
    "With enough messages, the server learns": all_of_C_and_rows_up_to_a_rotation,
    'A run with scale="max_abs" reveals one true entry': one_true_entry,
    "If rows are added, removed or changed": what_changes,
    "The app that comes with a run can read": the_app_reads_what_the_user_can_read,
}


def left_open(profile):
    """The plays of what a profile does not prevent."""
    page = Foe(profile, None).page()
    for sentence in (*page.open, *page.trusted):
        (play,) = [play for start, play in LEFT_OPEN.items() if sentence.startswith(start)]
        yield play


@pytest.mark.slow
@pytest.mark.parametrize("profile", SETS)
def test_runs_bring_out_what_the_page_says_and_no_more(profile, tmp_path):
    what_is_served(Foe(profile, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("profile", SETS)
def test_what_is_not_served_is_refused(profile, genuine_messages, tmp_path):
    what_is_not_served(Foe(profile, tmp_path), genuine_messages)


@pytest.mark.slow
@pytest.mark.parametrize("play", LEFT_OPEN.values(), ids=lambda play: play.__name__)
@every("profile", SETS)
def test_what_is_left_open_is_open(profile, play, tmp_path):
    """So that nobody reads more into a page than there is."""
    if play in left_open(profile):
        play(Foe(profile, tmp_path / profile))


@pytest.mark.slow
@pytest.mark.parametrize("profile", SETS)
def test_every_sentence_of_the_page_is_played(profile, capsys):
    """As the command prints it: each line is one of promises, of algorithms served or not, or of what is left open."""
    keys = ["trusted-keys='/k'"] if profile == "masked" else []
    assert main(["rules", "--profile", profile, *keys]) == 0
    head, played = "", []
    for line in capsys.readouterr().out.splitlines()[1:]:
        if not line.startswith("  "):
            head = line or head
        elif not line.startswith("  - "):
            assert line.startswith("  X are this node's rows")  # the line that explains the letters of the list below
        elif head == "What a run of each algorithm can reveal":
            names, words = line[4:].split(": ", 1)
            assert set(words.split("; ")) <= {*HOLDS, "nothing more"}
            played += names.split(", ")
        elif head == "Which algorithms this node refuses":
            names, why = line[4:].split(": ", 1)
            assert why in WORDS
            played += names.split(", ")
        else:
            claims = LEFT_OPEN if head in ("What these rules do not prevent", "What you have to trust") else CLAIMS
            assert len([start for start in claims if re.match(start, line[4:])]) == 1, line
    assert sorted(played) == sorted(["any algorithm", *allowed_names()])


@pytest.mark.slow
def test_no_play_is_of_a_sentence_that_no_profile_prints():
    pages = [Foe(profile, None).page().text() for profile in SETS]
    for start in (*CLAIMS, *LEFT_OPEN):
        assert any(re.search(f"  - {start}", page) for page in pages), start


NO_SUMS = {"opening": {**OPENING, "peaks": True}, "standardize": {}, "names": {}}


@pytest.mark.parametrize("stage", NO_SUMS)
def test_no_masked_sum_is_of_entries_of_rows_or_of_nothing(stage, tmp_path):
    """What is summed up has to be sums: the largest values of each column are entries of rows at every node."""
    sums = Sums(Foe("masked", tmp_path).nodes(), algorithm="krylov")
    shapes = {part: which.shape for part, which in registry.STAGES[stage].parts(NO_SUMS[stage], 6).items()}
    with pytest.raises(RefusedError, match="would reveal a node's own results"):
        sums.sum(stage, NO_SUMS[stage], shapes, dict.fromkeys(shapes, 0.0))
