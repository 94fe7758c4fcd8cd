"""Test clients whose memories come from different messages: they are noticed, named, and started anew."""

import numpy as np
import pytest
from builders import two_lead
from checks import suiting
from fake_grid import grid_of
from masked import Run, gone
from spoilt import ROWS

from flower_pca import ConfigError, MaskedSums, make, registry, simulate, strategies
from flower_pca.algorithms.ssi import SSI
from flower_pca.masking.messages import NOTHING, course_after_answer, next_course, stage_memory
from flower_pca.masking.secrets import SetupSecrets
from flower_pca.report import pages

FIVE, LOW = two_lead(5), np.array_split(ROWS, 5)
ROBUST = "consensus_rpca(gamma=0.7, max_rounds=6)"
KEEPERS = {
    "consensus_rpca": "consensus_rpca(gamma=0.7, max_rounds=3)",
    "dcf_pca": "dcf_pca(max_rounds=3)",
    "faps": "faps(max_rounds=3)",
    "per_pca": "per_pca(local_components=1, eta=0.02, max_rounds=3)",
    "exact_per_pca": "exact_per_pca(local_components=1, local_steps=2, max_rounds=3)",
    "triple_pca": "triple_pca(local_components=1, max_rounds=3)",
}
OTHERS = [name for name in suiting("mask") if name not in KEEPERS]


def course_of(run, i):
    return SetupSecrets.from_memory(run.memories[i]).past.tobytes()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
@pytest.mark.parametrize("spec", [*KEEPERS.values(), *OTHERS])
def test_clients_that_keep_something_have_a_course_and_others_have_none(spec):
    run, seen = Run(FIVE, spec, reconstruction_error=True), set()
    while run.message() is not None:
        run.step()
        courses = {course_of(run, i) for i in range(5) if SetupSecrets.from_memory(run.memories[i])}
        assert len(courses) <= 1
        seen |= courses
    kept = spec.split("(")[0] in KEEPERS
    assert (len(seen) > 3) == kept
    assert kept or seen == {NOTHING}
    uploads = [{a["mask.past"].tobytes() for a in came.values() if "mask.y" in a} for came in run.came]
    assert all(len(told) <= 1 for told in uploads)
    assert not any(r.notes for r in run.session.history)


def test_a_course_is_of_all_messages_in_their_order():
    one, other = bytes([1] * 32), bytes([2] * 32)
    ssi = {next_course(next_course(NOTHING, a, "ssi"), b, "ssi") for a, b in ((one, other), (other, one), (one, one))}
    assert len(ssi) == 3
    assert (
        next_course(one, other, "evaluate")
        == next_course(NOTHING, other, "evaluate")
        == next_course(NOTHING, other, "ssi")
    )
    kept = {"V": np.ones(2)}
    assert course_after_answer(kept, one, other, "consensus_rpca") == other
    assert course_after_answer(kept, one, other, "evaluate") == one
    assert (
        course_after_answer({}, one, other, "consensus_rpca")
        == course_after_answer({"dp.spent": np.array(1.0)}, one, other, "ssi")
        == NOTHING
    )


def test_what_has_no_course_is_not_seen_but_for_the_rows_of_a_step_and_what_was_spent():
    own = {"V": np.ones(2), "dp.spent": np.array(1.0)}
    assert stage_memory(own, bytes([1] * 32), "faps") == stage_memory(own, NOTHING, "evaluate") == own
    assert stage_memory(own, NOTHING, "faps") == {"dp.spent": np.array(1.0)}
    batch = {"at": np.array([3, 2]), "left": np.array(1), "cursor": np.zeros(2), "Y": np.ones((2, 2))}
    left = stage_memory(
        {**batch, "L": np.ones((2, 2)), "found": np.zeros((2, 2)), "counts": np.ones(5)}, NOTHING, "st_miss"
    )
    assert left.keys() == batch.keys()
    assert left["at"].tolist() == [3, -1]
    assert stage_memory({}, NOTHING, "st_miss") == {}


@pytest.mark.slow
@pytest.mark.parametrize("self_masks", [True, False])
def test_a_client_that_strays_is_out_of_the_sum_by_name_and_then_all_begin_afresh(self_masks):
    """One of five was asked a message that the others have never seen."""
    run = Run(LOW, ROBUST, n_components=5, masks=MaskedSums(self_masks=self_masks)).until("upload", 5)
    run.memories[3]["mask.past"] = np.full(32, 7, dtype=np.uint8)
    record = run.step()
    reason = "Client 3 received other messages of this run than most clients, or in another order."
    assert record.failures == {"3": f"{reason} This sum continues without it, and all clients begin again."}
    assert record.answered == 4
    run.step()  # the message with the shares that take the client out of the sum
    assert run.due("keys", 0)
    assert len({course_of(run, i) for i in (0, 1, 2, 4)}) == 1
    record = run.step()
    assert (record.answered, record.failures) == (5, {})
    assert record.notes == {"3": f"{reason} All clients begin again."}
    assert run.message().arrays_for(1)["mask.course"].tobytes() == NOTHING
    run.step()
    assert {course_of(run, i) for i in range(5)} == {NOTHING}
    run.step()
    assert len({course_of(run, i) for i in range(5)} - {NOTHING}) == 1
    result = run.finish()
    assert result.n_samples_ == len(ROWS)
    assert result.angle_to(simulate(ROBUST, LOW, n_components=5)) < 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
def test_a_client_that_missed_a_sum_is_named_when_it_is_back_where_that_matters():
    for spec, named in (("exact_per_pca(local_components=1, local_steps=5)", {"2"}), ("ssi(min_rounds=20)", set())):
        result = simulate(spec, FIVE, n_components=2, mask=True, fraction=gone(2, at=14, back=15))
        assert result.status.ok
        keys = result.history.of("mask.keys")
        assert len(keys) == 2
        assert set(keys[1].notes) == named
        assert not any(r.notes for r in result.history if r is not keys[1])
        page = pages.tables_of_failures(result.history, result.site_names)
        assert (
            ("Clients that had strayed" in page)
            == ("Client 2 received other messages of this run" in page)
            == bool(named)
        )


@pytest.mark.filterwarnings("ignore:theta is")
@pytest.mark.parametrize("name", KEEPERS)
@pytest.mark.slow
def test_a_run_that_begins_afresh_in_its_midst_comes_to_the_same_end(name):
    spec = {
        "consensus_rpca": "consensus_rpca(gamma=0.7)",
        "dcf_pca": "dcf_pca(step='scaled', max_rounds=200)",
        "faps": "faps(tol=1e-6)",
        "per_pca": "per_pca(local_components=1, eta=0.1, tol=1e-3)",
        "exact_per_pca": "exact_per_pca(local_components=1, local_steps=5, tol=1e-8)",
        # Otherwise it depends on the path which entries are outliers.
        "triple_pca": "triple_pca(local_components=1, tol=1e-8, threshold=8.0)",
    }[name]
    parts, k = (np.array_split(ROWS, 4), 5) if name in ("consensus_rpca", "dcf_pca") else (two_lead(4), 2)
    whole = simulate(spec, parts, n_components=k)
    result = simulate(spec, parts, n_components=k, mask=True, fraction=gone(1, at=16, back=17, of=4))
    assert any(r.notes for r in result.history)
    assert result.status.ok
    assert result.angle_to(whole) < 1e-3


def test_an_algorithm_from_elsewhere_says_whether_it_can_forget(monkeypatch):
    class Recalling(SSI):
        name = "recalling"
        remembers = True

    for table in (registry.TABLE, registry.ALGORITHMS, registry.STAGES):
        monkeypatch.setattr(registry, next(n for n, v in vars(registry).items() if v is table), dict(table))
    registry.register(Recalling)
    with pytest.raises(ConfigError, match=r"recalling.* does not support .*, because its clients keep a state"):
        simulate(Recalling(), FIVE, n_components=2, mask=True, fraction=0.5)
    monkeypatch.setattr(Recalling, "remembers", False)
    assert simulate(Recalling(max_rounds=2), FIVE, n_components=2, mask=True, fraction=0.5).rounds == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:theta is")
def test_over_flower_a_node_that_forgets_is_named_in_the_log(lines):
    own = {"local_components": 1, "local_steps": 5, "tol": 1e-8}
    grid = grid_of(FIVE, allow=["exact_per_pca"])
    grid.on_push = lambda message: grid.forget(grid.node(1)) if len(grid.sent) == 71 else None
    result = strategies.ExactPerPCA(n_components=2, **own, mask=True).fit(grid)
    (note,) = [r.notes for r in result.history if r.notes]
    assert list(note) == [str(grid.node(1))]
    assert any(f"Client {grid.node(1)} received other messages of this run than most clients" in line for line in lines)
    assert result.angle_to(simulate(make("exact_per_pca", **own), FIVE, n_components=2)) < 1e-6
