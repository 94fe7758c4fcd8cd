"""Test that `max_columns` counts the numbers that leave a node.

Under masks against those of the sums, which are all that a server sees.
"""

import numpy as np
import pandas as pd
import pytest
from builders import shards
from cases import every
from fake_grid import FakeGrid, arrays_in, hosts_of
from people import PARTS

from flower_pca import Stream, Table
from flower_pca.base import files
from flower_pca.clients import client_app
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.core.run import Run
from flower_pca.core.stage import Sum
from flower_pca.layers import EXPONENTS
from flower_pca.strategies import PCAStrategy, TrackingStrategy

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("lines", "home")]
D = 7
ROWS = [X + 4.0 * X[:, :1] for X in shards((60, 50, 40), 3.0 * 0.7 ** np.arange(D), shift=0.3)]
GAPPY = [np.where(np.random.default_rng(i).random(X.shape) < 0.1, np.nan, X) for i, X in enumerate(ROWS)]
WORDS = [pd.DataFrame(X[:, :5], columns=list("abcde")).assign(ward=["x", "y"] * (len(X) // 2)) for X in ROWS]
STREAMS = [Stream(X, batch=20) for X in ROWS]
WHOLE = {"n", "rows", "single", "clients", "probed"}
DP = "dp(epsilon=5.0, delta=1e-6, clip=10.0)"
PEOPLE = len(PARTS[0])

CASES = {  # a message, the rows, and the number of columns that it counts
    "opening, rounds, closing": ("faps(max_rounds=3)", {"reconstruction_error": True}, ROWS, D),
    "all of C, errors": ("covariance", {"standard_errors": True}, ROWS, D),
    "one round": ("wda", {"scale": "max_abs"}, ROWS, D),
    "bases of clients": ("local_power(max_rounds=3)", {}, ROWS, D),
    "medians": ("median_pca", {}, ROWS, D),
    "factors": ("dr_svd", {}, ROWS, D),
    "counts": ("krylov", {"monitor": True, "missing": "mean"}, GAPPY, D),
    "signs": ("krylov", {"n_components": "signal"}, ROWS, D),
    "categorical": ("covariance", {"categorical": "ward", "scale": "std"}, WORDS, D),
    "noise": ("ssi(max_rounds=3)", {"dp": DP}, ROWS, D),
    "half precision": ("ssi(max_rounds=3, tol=0.001)", {"wire": "float16"}, ROWS, D),
    "personal": ("exact_per_pca(max_rounds=3)", {}, ROWS, D),
    "robust": ("dcf_pca(max_rounds=3)", {}, ROWS, D),
    "columns apart": ("krylov(max_rounds=3)", {"partitioned_by": "columns"}, PARTS, PEOPLE),
    "a stream": ("st_miss", {}, STREAMS, D),
}
MASKED = ["opening, rounds, closing", "counts", "signs", "categorical", "noise", "personal", "robust", "columns apart"]
MASKED += ["a stream"]
HOSTED = ["opening, rounds, closing", "one round", "counts"]
EVERY = [(case, "plain") for case in CASES] + [(case, "masked") for case in MASKED] + [(c, "hosted") for c in HOSTED]


def over(numbers, d):
    return -(-numbers // d)


def count_of(arrays):
    """All numbers, but single whole ones, such as how many rows there are."""
    return sum(a.size for a in map(np.asarray, arrays) if a.ndim or a.dtype.kind == "f")


def counted_in_sum(arrays):
    """The same where all are floats."""
    return sum(np.size(a) for name, a in arrays.items() if np.ndim(a) or name not in WHOLE)


def numbers_in(reply):
    """Of one answer, but for exponents, which pack its numbers; of an evaluation, the sum of squares."""
    if "arrays" not in reply.content:
        return 1
    return count_of(a for name, a in arrays_in(reply).items() if not name.endswith(EXPONENTS))


def numbers_of_first(reply):
    """Of the first of the answers that are stacked in one."""
    stacks = [a.numpy()[0] for record in reply.content.array_records.values() for a in record.values()]
    return count_of(stacks) if stacks else 1


def fit_case(grid, case, how):
    algorithm, asked, *_ = CASES[case]
    asked = {"n_components": 2, "min_nodes": 3, **asked, **({"mask": True} if how == "masked" else {})}
    if how == "hosted":
        asked["hosted"] = "stacked"
    if algorithm == "st_miss":
        TrackingStrategy(algorithm, steps=2, **asked).fit(grid)
    else:
        PCAStrategy(algorithm, **asked).fit(grid)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every(("case", "how"), EVERY)
def test_the_ledger_has_the_columns_that_left(case, how, tmp_path, monkeypatch):
    _, _, rows, d = CASES[case]
    folder = tmp_path / f"{case}, {how}"
    rules = {"max_columns": 10**6, "memory_dir": folder, "allow": allowed_names(), "missing": "mean"}
    rules |= {"split_columns": True} if case == "columns apart" else {}
    rules |= {"categorical": "ward"} if case == "categorical" else {}
    held = [Table.of(X) if isinstance(X, pd.DataFrame) else X for X in rows]
    seen, sums, advance = [], [], Run.advance

    def noting(run, replies):
        came = list(replies)
        sums.extend(over(counted_in_sum(r.arrays), d) for r in came if isinstance(r, Sum))
        return advance(run, came)

    if how == "hosted":
        grid = hosts_of(held, each=3, **rules)
    else:
        app = client_app(lambda context: held[context.node_config["partition-id"]], **rules)
        grid = FakeGrid(app, len(held))
    first = grid.node(0)

    def note(message, reply):
        if message.metadata.dst_node_id == first and message.metadata.message_type != "query":
            seen.append(over((numbers_of_first if how == "hosted" else numbers_in)(reply), d))
        return reply

    grid.tamper = note
    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", noting)
        fit_case(grid, case, how)
    (path,) = folder.glob("flower_pca-ledger-0.npz")
    book = files.read(path, "ledger of a node", private=True)[0]
    assert book["columns"] == sum(sums if how == "masked" else seen) > 0
