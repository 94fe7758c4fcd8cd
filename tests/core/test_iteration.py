"""Test what iterations share: progress, the remaining angle, and the four ways to end."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from by_hand import model
from cases import every

from flower_pca.base.history import Outcome
from flower_pca.core.algorithm import Iterative, Progress, SubspaceMovement, scale_up_to_all_rows

EPS32 = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class PlainState:
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class Plain(Iterative[PlainState]):
    """The least iteration: its state is its progress."""

    name = "plain"

    def start(self, model):
        return PlainState(Progress.begin(self.tol, model))

    def broadcast(self, state):
        return {}

    @staticmethod
    def parts(arrays, d):
        return {}

    @staticmethod
    def client(arrays, data, memory):
        return {}, memory

    def server(self, state, total, answered):
        return state

    def finish(self, state, model):
        return model


def progress_after(*errors, tol=1e-6):
    progress = Progress(tol=tol)
    for error in errors:
        progress = progress.step(error)
    return progress


def test_progress_counts_rounds_since_the_error_last_fell():
    assert [progress_after(*[3.0, 2.0, 2.5, 2.0, 1.9][:r]).stale for r in range(6)] == [0, 0, 0, 1, 2, 0]
    progress = progress_after(3.0, 2.0, 2.5)
    assert (progress.rounds, progress.error, progress.best) == (3, 2.5, 2.0)


def test_progress_watches_the_measure_instead_where_one_is_given():
    progress = Progress(tol=0.1).step(5.0, 1.0).step(6.0, 0.5).step(4.0, 0.7)
    assert (progress.error, progress.best, progress.stale) == (4.0, 0.5, 1)


def test_an_unknown_error_does_not_stall_a_run():
    assert progress_after(math.inf, math.inf).stale == 0
    assert Progress(tol=0.1).step(1.0, rounds=0).rounds == 0


def test_the_state_goes_on_while_nothing_ends_it():
    assert Plain().status(PlainState(progress_after())) is None
    assert Plain().status(PlainState(progress_after(1.0, 0.5))) is None


@every(
    ("algorithm", "progress", "outcome", "words"),
    [
        (
            Plain(tol=1e-3),
            progress_after(1.0, 5e-4, tol=1e-3),
            Outcome.CONVERGED,
            "largest residual relative to the first eigenvalue 0.0005 is at most tol=0.001 after 2 rounds",
        ),
        (
            Plain(tol=1e-9),
            progress_after(1e-6, tol=4e-6),
            Outcome.CONVERGED,
            "largest residual relative to the first eigenvalue 1e-06 is at most 4e-06, the precision of the data "
            "after 1 round",
        ),
        (
            Plain(min_rounds=0),
            Progress(tol=1e-6, error=1e-9),
            Outcome.CONVERGED,
            "largest residual relative to the first eigenvalue 1e-09 is at most tol=1e-06 after the opening message",
        ),
        (
            Plain(patience=2),
            progress_after(0.5, 0.6, 0.5),
            Outcome.STALLED,
            "largest residual relative to the first eigenvalue 0.5 has not fallen for the last 2 of 3 rounds",
        ),
        (
            Plain(max_rounds=3),
            progress_after(0.5, 0.4, 0.3),
            Outcome.MAX_ROUNDS,
            "largest residual relative to the first eigenvalue 0.3 is above tol=1e-06 after 3 rounds",
        ),
    ],
)
def test_an_iteration_ends_with_words(algorithm, progress, outcome, words):
    status = algorithm.status(PlainState(progress))
    assert (status.outcome, status.words) == (outcome, words)
    assert status.ok == (outcome is Outcome.CONVERGED)
    assert str(status) == f"{outcome.value}: {words}"


def test_min_rounds_hold_off_every_end():
    assert Plain(min_rounds=3, patience=1).status(PlainState(progress_after(0.0, 0.0))) is None
    assert Plain(min_rounds=3).status(PlainState(progress_after(1.0, 0.5, 0.0))).outcome is Outcome.CONVERGED


def test_tol_is_never_asked_below_the_precision_of_the_data():
    assert Plain(tol=1e-12).start(model(eps=EPS32)).progress.tol == 32 * EPS32
    assert Plain(tol=1e-2).start(model(eps=EPS32)).progress.tol == 1e-2


def test_metrics_give_the_error_once_known():
    assert Plain().metrics(PlainState(progress_after())) == {}
    assert Plain().metrics(PlainState(progress_after(0.25))) == {"error": 0.25}


def steps_turning(*sines):
    """Steps through lines of a plane that turn by these sines."""
    taken, at = SubspaceMovement(), 0.0
    for sine in sines:
        before, at = at, at + math.asin(sine)
        taken = taken.add(*(np.array([[math.cos(a)], [math.sin(a)], [0.0]]) for a in (before, at)))
    return taken


def test_steps_keep_the_newest_four_sines():
    taken = steps_turning(0.5, 0.4, 0.3, 0.2, 0.1)
    assert taken.sines == pytest.approx([0.4, 0.3, 0.2, 0.1], rel=1e-13)
    assert taken.newest == taken.sines[-1]


@every("ratio", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 100)])
def test_what_remains_of_a_geometric_fall_is_the_sum_of_its_steps(ratio):
    sines = [Fraction(1, 4) * ratio**r for r in range(4)]
    tail = sines[-1] / (1 - ratio)
    assert SubspaceMovement(tuple(map(float, sines))).remaining == pytest.approx(float(tail), rel=1e-12)


def test_what_remains_takes_the_slowest_of_the_last_falls():
    assert SubspaceMovement((0.4, 0.36, 0.036)).remaining == pytest.approx(0.36, rel=1e-12)


@every("sines", [(0.3,), (0.2, 0.3), (0.3, 0.3)])
def test_what_remains_is_unknown_without_a_fall(sines):
    assert SubspaceMovement(sines).remaining == math.inf


def test_nothing_remains_after_a_step_of_zero():
    assert SubspaceMovement((0.3, 0.0)).remaining == 0.0


def test_width_is_at_least_what_a_fraction_starts_with():
    assert Plain(oversample=3).width(4) == 7
    assert Plain(oversample=3).width(0.9) == 13


def test_a_restart_holds_what_is_known_and_a_little_of_every_other_direction():
    Z = np.eye(50)[:, :3]
    block = Plain().restart(model(basis=Z))
    assert block.shape == (50, 3)
    cosines = np.linalg.svd(Z.T @ np.linalg.qr(block)[0], compute_uv=False)
    assert 0.97 < cosines.min() < 1.0
    assert (np.abs(block[3:]).max(axis=1) > 0).all()
    assert not np.array_equal(block, Plain().restart(model(basis=Z, restarts=1)))


def test_share_scales_a_sum_to_all_rows():
    np.testing.assert_allclose(
        scale_up_to_all_rows({"Y": np.ones((2, 1)), "n": np.array(25)}, "Y", 100), [[4.0], [4.0]], rtol=1e-15
    )
