"""LocalPower as its authors' program runs it: the steps against plain loops, and the numbers of the paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import every

from sims.common import report
from sims.local_power import program, readings, tables, theory
from sims.local_power.known import TABLE5, TABLE6
from sims.local_power.program import Case, Variant


def skewed_rows(n=90, d=8, seed=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.geomspace(3.0, 0.3, d) + np.linspace(0.0, 2.0, d)


def one_client_at_a_time(parts, start, true, align, p, messages, decay):
    """The same by a loop over clients, with LAPACK's QR: the errors of the first four columns before each message."""
    Z, errors = start, []
    for _ in range(messages):
        errors.append(np.linalg.norm((np.eye(len(Z)) - true @ true.T) @ Z[:, :4], 2))
        total, first = np.zeros_like(Z), None
        for X in parts:
            basis = Z
            for _ in range(p - 1):
                basis = np.linalg.qr(X.T @ (X @ basis))[0]
            product = X.T @ (X @ basis)
            first = basis if first is None else first
            if align == "OPT":
                U, _, Vt = np.linalg.svd(basis.T @ first)
                product = product @ U @ Vt
            elif align == "sign" and p > 1:
                product = product * np.sign(np.sum(basis * first, axis=0))
            total += product
        Z = np.linalg.qr(total)[0]
        p = max(1, p // 2) if decay else p
    return np.array(errors)


@every("variant", [Variant(a, p, d) for a in program.ALIGNMENTS for p, d in ((1, False), (4, False), (4, True))])
def test_the_batched_run_is_the_loop_over_clients(variant):
    X = program.scaled(skewed_rows())
    posed = program.pose(X, 4, seed=7)
    rng = np.random.default_rng(7)
    order = rng.permutation(len(X))
    parts = np.split(X[order], [23, 46, 69])
    true = np.linalg.svd(X, full_matrices=False)[2][:5].T
    others = [Variant("OPT", 8), Variant("vanilla", 2)]  # others run at the same time, which changes nothing
    found = program.run(posed, [others[0], variant, others[1]], 12)[1]
    loop = one_client_at_a_time(parts, posed.start, true, variant.align, variant.p, 12, variant.decay)
    np.testing.assert_allclose(found.measured, loop, rtol=1e-6, atol=1e-12)
    assert np.all(found.printed >= found.measured - 1e-12)


@every("shape", [(7, 9, 5), (4, 30, 3), (2, 6, 6)])
def test_all_blocks_at_once_are_orthonormalised_as_lapack_does_it(shape):
    Y = np.random.default_rng(1).standard_normal(shape) * np.geomspace(1e4, 1e-2, shape[2])
    Y[1] = 0.0
    np.testing.assert_allclose(program.orth(Y), np.linalg.qr(Y)[0], atol=1e-13)
    np.testing.assert_allclose(program.orth(Y[0]), np.linalg.qr(Y[0])[0], atol=1e-13)
    Q, R = np.linalg.qr(Y[0])
    np.testing.assert_allclose(program.orth(Y[0], positive=True), Q * np.sign(np.diag(R)), atol=1e-13)


def test_parts_have_the_programs_sizes():
    assert program.part_sizes(10, 3) == [4, 4, 2]
    assert program.part_sizes(11, 5) == [3, 3, 3, 2, 0]
    assert Case("a", np.ones((2001, 6))).clients == 3
    assert Case("a", np.ones((3001, 6))).clients == 4
    assert (Case("mnist", np.ones((9, 6))).messages("tables"), Case("ijcnn1", np.ones((9, 6))).messages("steps")) == (
        30,
        100,
    )


def test_columns_go_from_nothing_to_one():
    X = program.scaled(np.array([[2.0, 5.0, 1.0], [4.0, 5.0, -1.0], [3.0, 5.0, 0.0]]))
    np.testing.assert_allclose(X, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    np.testing.assert_allclose(program.by_peaks(np.array([[2.0, 0.0], [-4.0, 0.0]])), [[0.5, 0.0], [-1.0, 0.0]])


def test_one_shot_methods_are_their_definitions_in_the_programs_norm():
    X = program.scaled(skewed_rows(n=200, d=9))
    case = Case("rows", skewed_rows(n=200, d=9))
    posed = case.posed(seed=5)
    order = np.random.default_rng(5).permutation(200)
    true = np.linalg.svd(X, full_matrices=False)[2][:5].T
    plain, weighted = np.zeros((9, 9)), np.zeros((9, 9))
    for part in np.split(X[order], [67, 134]):
        values, V = np.linalg.eigh(part.T @ part)
        plain += V[:, 4:] @ V[:, 4:].T
        weighted += (V[:, 4:] * values[4:]) @ V[:, 4:].T
    for method, total in (("UDA", plain), ("WDA", weighted)):
        outside = (np.eye(9) - true @ true.T) @ np.linalg.eigh(total)[1][:, 4:]
        found = case.one_shot(method, 5)
        np.testing.assert_allclose(found.measured, np.linalg.norm(outside), rtol=1e-6)
        np.testing.assert_allclose(found.printed, np.linalg.norm(outside, 2), rtol=1e-6)
    # with as many random columns as the rows have directions, DR-SVD is exact
    exact = program.reduced(posed.whole[:5, :5], np.random.default_rng(0))
    assert exact.shape == (5, 5)
    np.testing.assert_allclose(exact.T @ exact, np.eye(5), atol=1e-12)


def test_eta_is_its_formula_by_lanczos_too(monkeypatch):
    case = Case("rows", skewed_rows(n=300, d=12))
    X = case.rows[np.random.default_rng(2).permutation(300)]
    whole = X.T @ X / 300
    apart = [np.linalg.norm(part.T @ part / len(part) - whole, 2) for part in np.split(X, 3)]
    expected = max(apart) / np.linalg.norm(whole, 2)
    assert case.eta(2, 3) == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr(program, "NARROW", 3)
    assert case.eta(2, 3) == pytest.approx(expected, rel=1e-6)


def papers_case(file: Path) -> Case:
    (case,) = program.cases(report.Options(("x",), Path("out"), (str(file),), file.parent, 1, True))
    return case


def test_table_6_and_7_are_the_papers_on_small_sets(papers_data):
    cases = {name: papers_case(papers_data(name)) for name in ("poker", "abalone")}
    measured, printed = cases["poker"].finals([Variant(a, 4) for a in program.ALIGNMENTS], range(5))
    for align, errors in zip(program.ALIGNMENTS, measured, strict=True):
        paper, deviation = (float(x) for x in TABLE6["poker"][align].rstrip(")").split(" ("))
        assert abs(errors.mean() - paper) <= 3.0 * deviation / np.sqrt(5)
    assert printed[0].mean() > measured[0].mean()
    assert measured[2].mean() > 3.0 * measured[0].mean()  # vanilla falls behind
    poker = [cases["poker"].one_shot("DR-SVD", seed).measured[0] for seed in range(5)]
    assert np.mean(poker) == pytest.approx(1.25, abs=0.2)  # a norm of more than 1
    decayed = cases["abalone"].finals([Variant("OPT", 4, True)], range(5))[0][0]
    assert 1e-10 < decayed.mean() < 1e-9  # 3.5e-10 (4.1e-10) in the paper
    assert cases["poker"].eta(0, 20) == pytest.approx(float(TABLE5["poker"][0]), rel=0.2)
    assert len(cases["abalone"].X) == 2114


def test_a_positive_diagonal_makes_vanilla_as_good_as_sign_fixing(papers_data):
    case = papers_case(papers_data("poker"))
    positive = program.run(case.posed(0), readings.VARIANTS, 20, positive=True)
    raw = program.run(case.posed(0), readings.VARIANTS, 20)
    np.testing.assert_allclose(positive[2].measured[-1], raw[1].measured[-1], rtol=1e-9)
    assert raw[2].measured[-1] > 2.0 * positive[2].measured[-1]


def test_experiments_of_the_program_run_on_a_synthetic_set(tmp_path):
    opts = report.Options(("x",), tmp_path, (), tmp_path, 2, False)
    found = tables.table6(opts)
    assert [row[1] for row in found.rows[1:]] == ["ours", tables.PRINTED]
    rows = theory.power(opts).rows
    assert rows[1][0] == "synthetic"
    assert float(str(rows[1][7]).partition(" ")[0]) <= 1.0  # messages over (3)
    assert float(str(theory.sampled(opts).rows[1][3]).partition(" ")[0]) == pytest.approx(0.5, abs=0.2)
    labels = [row[1] for row in readings.readings(opts).rows[1:]]
    assert labels[:2] == ["the program", "all five columns, spectral norm"]
