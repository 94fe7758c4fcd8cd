"""Test that later answers stay within the Cauchy-Schwarz bound of the squares that a client has reported."""

from dataclasses import replace

import numpy as np
import pytest
from cases import every, paired
from checks import suiting
from scipy import sparse

from flower_pca import assembly, make, registry, simulate
from flower_pca.base.errors import ProtocolError
from flower_pca.core import claims
from flower_pca.core.drive import drive
from flower_pca.core.kinds import Kind
from flower_pca.layers import precision
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.simulation.backend import Shards

D = 7
RNG = np.random.default_rng(11)
SHARDS = [RNG.standard_normal((n, D)) * size + 0.3 for n, size in ((40, 3.0), (50, 2.0), (30, 1.0), (60, 2.5))]
SMALL = 2  # the client with corrupted answers
NAMES = sorted(registry.ALGORITHMS)
# What no inequality bounds: factors that steps may make longer.
UNBOUNDED = {"dcf_pca": {"U", "weight", "reach"}, "low_rank": {"G"}}


class Spoilt(Shards):
    """Clients of which one's answer is changed once, where `spoil` says so."""

    def __init__(self, shards, spoil):
        super().__init__([LocalData(X) for X in shards])
        self.spoil, self.done = spoil, None

    def ask(self, message):
        for reply in super().ask(message):
            if reply.client == SMALL and self.done is None and (arrays := self.spoil(message, reply)) is not None:
                self.done = message.number
                reply = replace(reply, arrays={**reply.arrays, **arrays})
            yield reply


def run_of(name, **settings):
    limits = {"max_rounds": 3} if "max_rounds" in make(name).__dataclass_fields__ else {}
    return assembly.run(assembly.config(make(name, **limits), n_components=2, reconstruction_error=True, **settings))


def stages_asked(name):
    """Stage and parts of every message that a run sends, once each."""
    seen = {}

    def note(message, reply):
        if message.stage not in ("opening",):
            parts = registry.STAGES[message.stage].parts(message.arrays_for(reply.client), D)
            for part, what in parts.items():
                seen.setdefault((message.stage, part), what)
        return

    drive(run_of(name), Spoilt(SHARDS, note))
    return seen


CASES = sorted(
    {
        (name, *key)
        for name in NAMES
        for key in stages_asked(name)
        if key[0] not in registry.ALGORITHMS or key[0] == name
    }
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
@pytest.mark.parametrize(("name", "stage", "part"), CASES)
def test_a_part_that_is_too_large_is_refused_and_names_its_client(name, stage, part):
    def spoil(message, reply):
        if message.stage != stage or part not in reply.arrays:
            return None
        a = reply.arrays[part]
        whole = a.dtype.kind in "iu"
        return {part: np.full_like(a, 10**9) if whole else np.full(a.shape, 1e30)}

    transport = Spoilt(SHARDS, spoil)
    run = run_of(name)
    try:
        drive(run, transport)
    except Exception as error:
        if part not in UNBOUNDED.get(stage, ()):
            raise AssertionError(f"{name}: {part} of {stage}") from error
    said = [r.failures.get(str(SMALL), "") for r in run.history if r.number == transport.done]
    assert transport.done is not None
    if part in UNBOUNDED.get(stage, ()):
        assert said == [""]
    else:
        assert (
            said[0].startswith(f"The array {part} in the answer of client {SMALL} has entries that are larger")
            or said[0].startswith(f"{part} in the answer of client {SMALL} must be")
            or said[0].startswith(f"Client {SMALL} reports ")
            or "The columns of V of an answer are not orthonormal" in said[0]
        )


@every("name", suiting("max_share"))
def test_what_all_rows_together_allow_is_not_enough(name):
    """Twice what its own rows can give, which is far less than what the others have."""
    rows = SHARDS[SMALL] - np.mean(np.vstack(SHARDS), axis=0)
    squares = float(np.sum(rows**2))
    assert squares < 0.05 * sum(float(np.sum(X**2)) for X in SHARDS)

    def spoil(message, reply):
        kinds = {n: p.kind for n, p in registry.STAGES[message.stage].parts(message.arrays, D).items()}
        for part, kind in kinds.items():
            if message.stage == name and kind in (Kind.PRODUCT, Kind.GRAM):
                a = reply.arrays[part]
                return {part: a * (2.0 * squares / np.linalg.norm(a, axis=0).max())}
        return None

    transport, run = Spoilt(SHARDS, spoil), run_of(name)
    drive(run, transport)
    (said,) = [r.failures[str(SMALL)] for r in run.history if r.failures]
    assert "has entries that are larger than its own rows allow. Check the client's data." in said


def test_the_number_of_rows_is_that_of_the_opening():
    transport = Spoilt(SHARDS, lambda message, reply: {"n": np.array(29)} if message.stage == "ssi" else None)
    run = run_of("ssi")
    drive(run, transport)
    (said,) = [r.failures[str(SMALL)] for r in run.history if r.failures]
    assert (
        said == "Client 2 reports 29 rows (n) in this answer, but reported 30 in the opening. Check the client's data."
    )


KINDS = {
    "single": lambda X: X.astype(np.float32),
    "far": lambda X: X * 1e-4 + 1e4,
    "far, single": lambda X: (X * 1e-1 + 1e3).astype(np.float32),
    "sparse, far": lambda X: sparse.csr_array(X * 1e-6 + 1.0),
    "one direction": lambda X: np.outer(X[:, 0], np.arange(1.0, D + 1.0)),
    "constant": lambda X: np.where(np.arange(D) < 2, X, 1e8),
    "zeros but two": lambda X: X * (np.arange(D) < 2),
    "few rows": lambda X: X[:2],
    "four rows": lambda X: X[:4],
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
@pytest.mark.parametrize(
    ("kind", "name", "answers"),
    paired(KINDS, [name for name in NAMES if not registry.STAGES[name].by_row], ["rows", "fixed"]),
)
def test_no_honest_answer_is_refused(name, kind, answers):
    shards = [KINDS[kind](X) for X in SHARDS]
    limits = {"max_rounds": 6} if "max_rounds" in make(name).__dataclass_fields__ else {}
    result = simulate(make(name, **limits), shards, n_components=1, answers=answers, reconstruction_error=True)
    assert not any(record.failures for record in result.history)


@pytest.mark.slow
@every("kind", KINDS)
@every("answers", ["rows", "fixed"])
@every("missing", ["error", "mean", "local_mean"])
def test_honest_peaks_are_accepted(kind, answers, missing):
    shards = [KINDS[kind](X) for X in SHARDS]
    if missing != "error" and "sparse" not in kind:
        shards = [np.where(np.random.default_rng(i).random(X.shape) < 0.2, np.nan, X) for i, X in enumerate(shards)]
        shards[1][:, 3] = np.nan
        shards[0][:] = KINDS[kind](SHARDS[0])[: len(shards[0])]
    settings = {"missing": missing, "scale": "max_abs", "answers": answers}
    result = simulate("krylov", shards, n_components=1, **settings)
    assert not any(record.failures for record in result.history)


@pytest.mark.parametrize("kind", ["single", "one direction", "few rows"])
@pytest.mark.parametrize("name", [name for name in NAMES if registry.STAGES[name].by_row])
def test_an_honest_low_rank_part_is_accepted(name, kind):
    if (name, kind) == ("triple_pca", "few rows"):
        kind = "four rows"  # With fewer rows no client can be compared.
    result = simulate(
        make(name, max_rounds=6), [KINDS[kind](X) for X in SHARDS], n_components=1, reconstruction_error=True
    )
    assert not any(record.failures for record in result.history)


@pytest.mark.slow
@every("missing", ["mean", "local_mean"])
@every("scale", [None, "std"])
@every("center", [True, False])
@every("seed", range(3))
def test_what_is_claimed_is_the_sum_of_squares_in_the_frame(missing, scale, center, seed):
    """Against the rows themselves, with their gaps filled."""
    rng = np.random.default_rng(seed)
    shards = [np.where(rng.random(X.shape) < 0.2, np.nan, X) for X in SHARDS]
    shards[0][:, 3] = np.nan
    run = run_of("ssi", missing=missing, scale=scale, center=center)
    transport = Shards([LocalData(X, missing=True) for X in shards])
    drive(run, transport)
    model = run.position.model
    for i, X in enumerate(shards):
        frame = model.frame
        there = np.nan_to_num(np.nanmean(np.where(np.isnan(X).all(axis=0), 0.0, X), axis=0))
        own = np.where(np.isnan(X).all(axis=0), frame.fill, there)
        filled = np.where(np.isnan(X), own if missing == "local_mean" else frame.fill, X)
        framed = (filled - (frame.mean if center else 0.0)) / (1.0 if scale is None else frame.scale)
        claim = model.claims[i]
        assert claim.n == len(X)
        np.testing.assert_allclose(claim.squares, np.sum(framed**2), rtol=1e-10)


def test_masked_and_noisy_answers_have_no_bound():
    for settings in ({"mask": True}, {"dp": "dp(epsilon=50, delta=1e-6, clip=9)"}):
        run = assembly.run(assembly.config("ssi", n_components=2, max_rounds=2, **settings))
        drive(run, Shards([LocalData(X) for X in SHARDS]))
        assert run.position.model.claims == {}


def test_a_checkpoint_keeps_what_was_claimed():
    first, shards = run_of("ssi"), Shards([LocalData(X) for X in SHARDS])
    for _ in range(2):
        message = first.pending(range(4))
        first.advance(shards.ask(message))
    again = run_of("ssi")
    again.restore(*first.checkpoint())
    assert again.position.model.claims == first.position.model.claims
    assert set(again.position.model.claims) == {0, 1, 2, 3}


def test_rounding_is_allowed_for_at_the_precision_that_a_client_names():
    said = {"n": np.array(100), "eps": np.array(1e-7), "mean": np.full(2, 1e3), "m2": np.zeros(2)}
    assert claims.claim_of_answer(said, Frame(mean=np.full(2, 1e3))).squares == pytest.approx(2 * 8 * 1e-7 * 100 * 2e6)


@every("apart", [1e-8, 1e-10, 1e-11, 1e-12, 1e-30])
def test_an_opening_in_sixteen_bits_is_believed_where_columns_are_in_proportion(apart):
    """Cauchy-Schwarz holds with equality there, and what is small beside its column is rounded by more than itself."""
    refused = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((50, 1)) * np.array([1.0, apart, 3.1 * apart])
        X, block = X - X.mean(axis=0), np.abs(rng.standard_normal((3, 2)))
        product = precision.round_to(X.T @ (X @ block), 16)
        m2 = np.sum(X**2, axis=0)
        said = {"n": np.array(50), "eps": np.array(2.0**-52), "mean": np.zeros(3), "m2": m2, "product": product}
        claims.check_opening(said, block, bits=16)
        try:
            claims.check_opening(said, block)
        except ProtocolError:
            refused += 1
        with pytest.raises(ProtocolError, match="larger than its squared deviations allow"):
            claims.check_opening({**said, "product": 1.01 * product}, block, bits=16)
    assert (refused > 0) == (1e-12 <= apart <= 1e-10)
