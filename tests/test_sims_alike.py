"""FAPS with clients that are alike: one stands for all, and the messages are the paper's."""

from __future__ import annotations

import numpy as np
import pytest
from cases import every

from sims import cards, faps, faps_alike
from sims.common import problems, report


@every("method", [*faps_alike.METHODS, "LocalPower"])
def test_one_client_stands_for_eight_that_are_alike(method):
    spectrum = problems.geometric(40, 1.05)
    if method == "LocalPower":
        algorithm = "local_power(oversample=0, local_steps=8, halve_every=1)"
        one = faps_alike.powered(spectrum, 3, 0, 40, schedule=(8, 4, 2, 1))
    else:
        algorithm = faps_alike.METHODS[method]
        one = faps.course(algorithm, faps_alike.posed(spectrum, 3), seed=0, messages=40, to_rule=False)
    eight = faps.course(algorithm, faps_alike.posed(spectrum, 3, clients=8), seed=0, messages=40, to_rule=False)
    n = min(len(one.errors), len(eight.errors), 4 if method == "LocalPower" else 40)
    first = 1 if method == "LocalPower" else 0  # its block begins after the opening's product
    np.testing.assert_allclose(one.errors[first:n], eight.errors[first:n], rtol=1e-6, atol=1e-12)


def test_a_diagonal_is_as_good_as_rows_with_its_spectrum():
    spectrum, k = problems.geometric(30, 1.1), 3
    counts = {"diagonal": [], "rows": []}
    for seed in range(8):
        dense = problems.pose([problems.synthetic(200, spectrum, seed)], k=k)
        for name, problem in (("diagonal", faps_alike.posed(spectrum, k)), ("rows", dense)):
            seen = faps.course(faps_alike.METHODS["FAPS"], problem, seed=seed, messages=200, to_rule=False)
            counts[name].append(seen.to_target)
    assert np.median(counts["diagonal"]) == pytest.approx(np.median(counts["rows"]), rel=0.3)


def test_local_power_that_keeps_two_steps_takes_half_of_the_messages():
    spectrum = problems.geometric(100, 1.01)
    for seed in range(2):
        ssi = faps_alike.run("SSI", spectrum, 10, seed).to_target
        local = faps_alike.run("LocalPower", spectrum, 10, seed).to_target
        assert abs(local - ((ssi - 12) / 2 + 2)) <= 2.5  # the paper: 164 of 337
        assert 2 * faps_alike.run("FAPS", spectrum, 10, seed).to_target < ssi


def test_experiments_report_the_numbers_of_the_paper():
    opts = report.Options(("x",), None, (), None, 2, False)
    rows = {row[0]: row for row in faps_alike.table1(opts).rows[1:]}
    assert (rows["SSI"][3], rows["FAPS, 20 inner steps"][3]) == ("207", "42")
    assert float(str(rows["SSI"][4]).partition("..")[0]) == pytest.approx(1.94e-6, rel=0.1)  # of Tables 2 and 4


def test_a_problem_of_several_sizes_n_has_one_row_and_its_means_have_deviations(monkeypatch):
    known = {"n": faps.TABLE2_PAPER["n"], "xi": faps.TABLE2_PAPER["xi"]}
    monkeypatch.setattr(faps, "GRID", {"n": faps.GRID["n"], "xi": faps.GRID["xi"][:1]})
    found = faps_alike.table2(report.Options(("x",), None, (), None, 2, False))
    header, *rows = found.rows
    problems_shown = ["d=100, k=10, xi=1.01", "d=100, k=10, xi=1.1"]
    assert [row[1] for row in rows] == [name for problem in problems_shown for name in (problem, "paper, mean of 4")]
    assert found.stated
    for row in (dict(zip(header, cells, strict=True)) for cells in rows[::2]):
        assert all(len(row[f"KKT: {name}"].draws) == 2 for name in ("SSI", "LocalPower", "FAPS"))
        assert cards.value(row["FAPS / SSI"]).low <= cards.value(row["FAPS / SSI"]).high
    printed = {row[0]: row[header.index("KKT: FAPS")] for row in rows[1::2]}
    assert printed == {name: cells[2].partition(", ")[0] for name, cells in known.items()}


def test_the_late_rate_of_faps_is_that_of_the_theory():
    """But for the tenth by which every penalty grows at the fifth message, which the theory leaves out."""
    spectrum, k = problems.geometric(20, 1.3), 3
    seen = faps.course("faps(penalty='paper', inner_steps=60)", faps_alike.posed(spectrum, k), seed=0, messages=60)
    slower = np.log(seen.kkt[-5] / seen.kkt[-1]) / 4 / np.log(spectrum[k - 1] ** 2 / spectrum[k] ** 2)
    assert slower == pytest.approx(faps_alike.late(spectrum, k), rel=0.08)


def test_fewer_and_more_inner_steps_stand_side_by_side():
    found = faps_alike.inner(report.Options(("x",), None, (), None, 1, False))
    header, *rows = found.rows
    assert [row[0] for row in rows] == [
        "d=100, k=20, xi=1.01",
        "d=100, k=20, xi=1.01",
        *(f"d=100, k=10, xi={x}" for x in ("1.1", "1.0032")),
    ]
    assert float(rows[2][-1]) == pytest.approx(0.99, abs=0.01)
    for row in rows:
        one = dict(zip(header, row, strict=True))
        shares = [float(one[f"FAPS, {n} inner steps"]) / float(one["LocalPower"]) for n in faps_alike.INNER]
        assert [f"{share:.2f}" for share in shares] == [one[f"{n}: FAPS / LocalPower"] for n in faps_alike.INNER]
