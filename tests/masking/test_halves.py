"""Words of 32 bits: two sums to a word, where a tolerance leaves room for their noise; else all have 64."""

from dataclasses import replace

import numpy as np
import pytest
from builders import pooled, rotation, shards
from cases import slow_if
from fake_grid import grid_of
from hypothesis import given
from hypothesis import strategies as st
from masked import Run

from flower_pca import DP, MaskedSums, PCAResult, simulate
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.core.stage import Reply
from flower_pca.masking import fixed, messages
from flower_pca.strategies import PCAStrategy

ROWS = [X @ rotation(60, 0) for X in shards([90, 50, 70, 40, 60], 0.8 ** np.arange(60), shift=0.1)]
TOLD = "masks took words of 32 bits for products, as the tolerance leaves room for their noise"
HALVES = frozenset("Y")


def summed(parts, bound, clients):
    words = [fixed.encode({"Y": Y}, {"Y": bound}, clients, halves=HALVES) for Y in parts]
    assert all(len(w) == fixed.size({"Y": parts[0].shape}, {"Y": bound}, HALVES) for w in words)
    total = np.sum(words, axis=0, dtype=np.uint64)
    return fixed.decode(total, {"Y": parts[0].shape}, {"Y": bound}, clients, HALVES)["Y"]


@pytest.mark.slow
@given(
    clients=st.sampled_from([2, 3, 30, 500]),
    sides=st.tuples(st.integers(1, 7), st.integers(1, 5)),
    seed=st.integers(0, 99),
)
def test_sums_are_off_by_their_noise_whatever_shares_a_word(clients, sides, seed):
    rng = np.random.default_rng(seed)
    bound = 2.0 ** rng.integers(-30, 30, (sides[0], 1))
    parts = bound * rng.uniform(-1, 1, (clients, *sides)) / clients
    step = bound * 2.0**-29
    assert fixed.size({"Y": sides}, {"Y": bound}, HALVES) == -(-sides[0] * sides[1] // 2)
    assert (np.abs(summed(parts, bound, clients) - parts.sum(axis=0)) <= 18.5 * np.sqrt(clients) * step).all()


@pytest.mark.slow
def test_a_sum_as_large_as_its_bound_does_not_wrap_for_any_number_of_clients():
    bound = np.array(1.0)
    for sign in (1.0, -1.0):
        parts = np.full((fixed.MOST_CLIENTS, 3, 1), sign / fixed.MOST_CLIENTS)
        np.testing.assert_allclose(summed(parts, bound, fixed.MOST_CLIENTS), sign, atol=4e-6)
        np.testing.assert_allclose(summed(sign * np.ones((1, 3, 1)), bound, 1), sign, atol=1e-7)


def test_words_without_their_masks_and_answers_beyond_the_bound_are_refused():
    noise = np.random.default_rng(0).integers(0, 2**64, 40, dtype=np.uint64)
    with pytest.raises(ProtocolError, match="looks like noise"):
        fixed.decode(noise, {"Y": (80,)}, {"Y": np.array(1.0)}, 5, HALVES)
    with pytest.raises(
        DataError, match=r"Every entry of Y of this client must be finite and at most 1, the bound of the"
    ):
        fixed.encode({"Y": np.array([1.001])}, {"Y": np.array(1.0)}, 5, halves=HALVES)


def test_the_rule_is_one_of_bits_clients_and_columns():
    taken = [(16, 8, 784), (16, 250, 784), (16, 20, 2491), (16, 8192, 123)]
    not_taken = [(16, 300, 784), (16, 40, 2491), (32, 2, 10), (64, 2, 2)]
    assert all(fixed.halving(*case) for case in taken)
    assert not any(fixed.halving(*case) for case in not_taken)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", slow_if(["krylov", "ssi", "local_power(align='none')", "fed_oapm"], "fed_oapm"))
@pytest.mark.parametrize("scale", [None, "std"])
def test_runs_are_as_near_as_without_masks_and_say_so(algorithm, scale):
    asked = {"n_components": 3, "tol": 1e-3, "wire": "auto", "scale": scale}
    plain, masked = (simulate(algorithm, ROWS, mask=mask, **asked) for mask in (False, True))
    wide = simulate(algorithm, ROWS, mask=MaskedSums(bound=1e9), **asked)
    truth = pooled(ROWS, scale=scale).components[:3]
    assert masked.angle_to(truth) <= 1.2 * plain.angle_to(truth) + 1e-3
    assert (TOLD in masked.choices, TOLD in plain.choices, TOLD in wide.choices) == (True, False, False)
    assert masked.history.bytes_up / len(masked.history) < 0.75 * wide.history.bytes_up / len(wide.history)


def test_an_isotropic_spectrum_is_answered_to_the_tolerance():
    """The hardest case of the rule: no eigenvalue is far above the mean of all."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((400, 200)) for _ in range(10)]
    assert fixed.halving(16, 10, 200)
    run = Run(rows, "ssi(tol=1e-3, max_rounds=3)", wire="float16").until("upload", 2)
    Z = run.message().arrays["Z"]
    sums = []
    while not run.due("keys", 0) and run.message() is not None and not sums:
        deliver = run.session._run.advance

        def spied(replies, deliver=deliver):
            replies = list(replies)
            sums.extend(r.arrays["Y"] for r in replies if hasattr(r, "clients"))
            return deliver(replies)

        run.session._run.advance = spied
        run.step()
    X = np.vstack(rows)
    X = X - X.mean(axis=0)
    first = np.linalg.norm(X, 2) ** 2
    assert np.linalg.norm(sums[0] - X.T @ (X @ Z), axis=0).max() <= 1e-4 * first


@pytest.mark.parametrize("asked", [{"missing": "mean"}, {"mask": MaskedSums(bound=1e9)}, {"wire": "float32"}])
def test_what_leaves_no_room_keeps_64_bits(asked):
    found = simulate("krylov", ROWS, **{"n_components": 3, "tol": 1e-3, "wire": "float16", "mask": True, **asked})
    assert TOLD not in found.choices
    assert found.angle_to(pooled(ROWS).components[:3]) < 2e-3


def test_a_client_that_comes_later_is_given_words_with_room_for_it():
    run = Run(ROWS, "ssi(tol=1e-3)", wire="float16")
    late = lambda: tuple(range(4)) if len(run.sent) < 12 else tuple(range(5))  # noqa: E731
    run.message = lambda: run.session.pending(late())
    kinds = {}
    while (message := run.message()) is not None:
        if any(name.endswith(".Y") for name in message.arrays if name.startswith("mask.")):
            kinds.setdefault(len(message.to), messages.halves(message.arrays))
        run.step()
    assert kinds == {4: frozenset("Y"), 5: frozenset()}
    assert run.session.result().angle_to(pooled(ROWS).components[:2]) < 5e-3


def test_clients_that_drop_out_are_no_matter_to_the_others():
    run = Run(ROWS, "ssi(tol=1e-3)", n_components=3, wire="float16").until("upload", 2)
    run.step(gone=[1])
    assert len(run.session.layout.halves) == 1
    found = run.finish()
    assert found.angle_to(pooled(ROWS).components[:3]) < 5e-3


@pytest.mark.usefixtures("lines")
def test_a_grid_takes_the_words_of_the_run_in_process():
    asked = {"n_components": 3, "mask": True, "wire": "auto"}
    there = PCAStrategy("krylov(tol=0.001)", **asked).fit(grid_of(ROWS))
    here = simulate("krylov(tol=0.001)", ROWS, **asked)
    assert TOLD in there.choices
    assert there.angle_to(here) < 1e-5
    assert [r.bytes_up for r in there.history] == [r.bytes_up for r in here.history]


def test_a_run_that_goes_on_remembers_its_words(tmp_path):
    kept = tmp_path / "run.npz"
    asked = {"n_components": 3, "tol": 1e-3, "wire": "auto", "mask": True}
    whole = simulate("krylov", ROWS, checkpoint=kept, **asked)
    assert TOLD in PCAResult.load(whole.save(tmp_path / "r.npz")).choices


# ---- a server that is not honest


def asked_of(run, change, *, bits=None):
    message = run.message()
    layers = dict(message.layers)
    if bits is not None:
        layers["wire"] = {"bits": np.array(bits)}
    return run.answer(replace(message, arrays={**message.arrays, **change}, layers=layers), 0)


def test_nodes_refuse_such_words_where_the_rule_does_not_allow_them():
    words = (
        r"The words of a sum must be of 64 bits, but of products, for so few .* room for 32\. Got of 32\. Nothing was"
    )
    fine = Run(ROWS, "ssi", wire="float64").until("upload", 2)
    with pytest.raises(ProtocolError, match=words):
        asked_of(fine, {"mask.whole.Y": np.array(1e9)})
    with pytest.raises(ProtocolError, match=words):
        asked_of(fine, {"mask.whole.Y": np.array(1e9)}, bits=32)
    rough = Run(ROWS, "ssi(tol=1e-3)", wire="float16").until("upload", 2)
    with pytest.raises(ProtocolError, match=words):
        asked_of(rough, {"mask.whole.n": np.array(1e9)})
    noisy = Run(ROWS, "ssi(max_rounds=3)", dp=DP(epsilon=10.0, delta=1e-6, clip=10.0)).until("upload", 1)
    with pytest.raises(ProtocolError, match=words):
        asked_of(noisy, {"mask.whole.Y": np.array(1e9)}, bits=16)
    assert not any(messages.halves(m.arrays) for m in noisy.sent)


def test_clients_that_are_asked_for_other_words_do_not_cancel():
    run = Run(ROWS, "ssi(tol=1e-3)", wire="float16").until("upload", 2)
    message = run.message()
    whole = message.arrays["mask.whole.Y"]
    larger = replace(message, arrays={**message.arrays, "mask.whole.Y": 2.0 * whole})
    replies = [run.answer(message, 0), *(run.answer(larger, i) for i in message.to[1:])]
    course = replies[0].arrays["mask.past"]
    run.session.advance([Reply(r.client, r.number, {**r.arrays, "mask.past": course}) for r in replies])
    unmask = run.message()
    words = run.session.group.total({i: run.answer(unmask, i).arrays for i in unmask.to})
    with pytest.raises(ProtocolError, match="looks like noise"):
        run.session.layout.sums(words)
