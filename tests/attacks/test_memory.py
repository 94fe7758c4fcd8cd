"""Test a server that makes the memories of clients differ, and then asks all of them the same."""

import numpy as np
import pytest
from cases import paired
from dishonest import Node, Sums, error_of, signed

from flower_pca import ProtocolError, Stream, registry
from flower_pca.algorithms.robust.sizes import BINS
from flower_pca.masking import client
from flower_pca.masking.messages import NOTHING, bytes_as_array

D, P, VICTIM = 12, 3, 2
RNG = np.random.default_rng(3)
SHARDS = [RNG.standard_normal((80 + 5 * i, D)) * 0.8 ** np.arange(D) + 0.3 * RNG.standard_normal(D) for i in range(4)]
U = np.linalg.qr(RNG.standard_normal((D, P)))[0]
TRUTH = SHARDS[VICTIM].T @ SHARDS[VICTIM] @ U
SIZES = {"n": ()}


def numbers(**given):
    return {name: np.array(value) for name, value in given.items()}


def consensus(steps):
    """With thresholds so high that nothing is sparse, V becomes XU in one step, and is as it was in none."""
    path = numbers(lam=1e6, rho=0.0, cut=1e3, start=1e6, share=0.0, top=0, tag=0, origin=-1)
    return {"U": U, **path, **numbers(inner_steps=steps, seed=0, proof=False)}


def per(eta, seed=0):
    known = numbers(own=2, samples=False, eta=eta, choice=1, polar=True, seed=seed)
    return {"U": U, "b": np.eye(D)[:, :1], **known}


def faps(steps, Z=U):
    return {"Z": Z, **numbers(inner_steps=steps, inner_tol=0.0)}


def own_round(steps, V=U):
    return {"U": V, "b": np.eye(D)[:, :1], **numbers(own=2, samples=False, steps=steps)}


def factors(steps, seed=0):
    known = numbers(lam=1e6, rho=1.0, rho_row=1e-3, eta=1e-3, scaled=False, steps=1, inner_steps=steps, seed=seed)
    return {"U": U, **known}


def triple(V):
    return {**own_round(0, V), **numbers(cut=4.0, inner=1)}


OTHER = np.linalg.qr(RNG.standard_normal((D, P)))[0]
# By stage: what the victim is asked first and what the others are; what all are asked then; shapes and bounds of it.
ASKED = {
    "consensus_rpca": (consensus(1), consensus(0), consensus(0), {
        "B": (D, P), "G": (P, P), "n": (), "counts": (2, BINS),
    }),
    "dcf_pca": (factors(5), factors(1), factors(1), {"U": (D, P), "weight": (), "reach": ()}),
    "faps": (faps(5), faps(5, OTHER), faps(1), {"Y": (D, P)}),
    "per_pca": (per(0.1), per(1e-9), per(0.1), {"w": (), "Vb": (D, 1), "probed": (), "M": (D, P), "f": ()}),
    "triple_pca": (triple(U), triple(OTHER), triple(U), {
        "w": (), "Vb": (D, 1), "probed": (), "n": (), "Z": (D, P), "f": (),
    }),
    "exact_per_pca": (own_round(1), own_round(1, OTHER), own_round(1), {
        "w": (), "Vb": (D, 1), "probed": (), "n": (), "Z": (D, P), "f": (),
    }),
}  # fmt: skip


def nodes_in(folder, **rules):
    return signed(folder, SHARDS, allow=list(registry.ALGORITHMS), **rules)


def primed(nodes, stage, first, rest, shapes, *, run, **settings):
    """A sum in which the victim is asked another thing than the others; it is noise, but memories have moved."""
    bounds = dict.fromkeys(shapes, 1e8)
    sums = Sums(nodes, algorithm=stage, run=run, **settings)
    with pytest.raises(ProtocolError, match="noise"):
        sums.sum(stage, rest, shapes, bounds, told={VICTIM: first})
    return sums


def forgetful(monkeypatch):
    """Clients as they were before: nothing of what was asked before is in what masks are bound to."""
    monkeypatch.setattr(client, "next_course", lambda past, said, stage: said)
    monkeypatch.setattr(client, "stage_memory", lambda own, past, stage: own)


@pytest.mark.slow
def test_a_sum_told_one_client_alone_once_its_memory_was_moved(tmp_path, monkeypatch):
    """The attack, against clients that are bound to the newest message only: B of all is C_i U of the victim."""
    forgetful(monkeypatch)
    first, rest, then, shapes = ASKED["consensus_rpca"]
    nodes = nodes_in(tmp_path)
    sums = primed(nodes, "consensus_rpca", first, rest, shapes, run="one")
    total = sums.sum("consensus_rpca", then, shapes, dict.fromkeys(shapes, 1e8))
    assert error_of(total["B"], TRUTH) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("stage", ASKED)
def test_memories_that_were_moved_apart_give_noise_in_the_same_set_up(stage, tmp_path):
    first, rest, then, shapes = ASKED[stage]
    sums = primed(nodes_in(tmp_path), stage, first, rest, shapes, run="one")
    with pytest.raises(ProtocolError, match="noise"):
        sums.sum(stage, then, shapes, dict.fromkeys(shapes, 1e8))


class Chosen(Sums):
    """Sums whose server decides by itself at the set-up who begins afresh, or goes back, and who stays as it is."""

    def __init__(self, nodes, chosen, *, back=False, **more):
        self.chosen, self.back, self.told = chosen, back, {}
        super().__init__(nodes, **more)

    def course_of(self, i):
        past, earlier = (self.told[i][name].tobytes() for name in ("mask.past", "mask.earlier"))
        if i not in self.chosen:
            return past
        return earlier if self.back else NOTHING

    def send(self, i, arrays, frame=None):
        if "mask.course" in arrays:
            arrays = {**arrays, "mask.course": bytes_as_array(self.course_of(i))}
        answer = super().send(i, arrays, frame)
        if "mask.past" in answer and "mask.earlier" in answer:
            self.told[i] = answer
        return answer


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "chosen"), paired(ASKED, [(), (VICTIM,), (0, 1, 3)]))
def test_a_new_set_up_does_not_align_memories_that_differ(stage, chosen, tmp_path):
    """Whoever is told to begin afresh has another course than those who are not."""
    first, rest, then, shapes = ASKED[stage]
    nodes = nodes_in(tmp_path)
    primed(nodes, stage, first, rest, shapes, run="one")
    sums = Chosen(nodes, chosen, algorithm=stage, run="one")
    with pytest.raises(ProtocolError, match="noise"):
        sums.sum(stage, then, shapes, dict.fromkeys(shapes, 1e8))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ASKED)
def test_nor_do_clients_that_go_back_to_before_their_newest_answers(stage, tmp_path):
    """The others have answered the same message twice, the victim another one in between."""
    first, rest, then, shapes = ASKED[stage]
    nodes = nodes_in(tmp_path)
    bounds = dict.fromkeys(shapes, 1e8)
    primed(nodes, stage, first, rest, shapes, run="one")
    again = Chosen(nodes, range(len(nodes)), back=True, algorithm=stage, run="one")
    again.sum(stage, rest, shapes, bounds)  # all have gone back to where they were before the first sum
    primed(nodes, stage, first, rest, shapes, run="one")
    sums = Chosen(nodes, (0, 1, 3), back=True, algorithm=stage, run="one")
    with pytest.raises(ProtocolError, match="noise"):
        sums.sum(stage, then, shapes, bounds)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ASKED)
def test_an_honest_server_notices_and_all_begin_afresh(stage, tmp_path):
    """What comes then is what nodes answer that have never been asked anything."""
    first, rest, then, shapes = ASKED[stage]
    nodes = nodes_in(tmp_path / "moved", noise_seed=0)
    primed(nodes, stage, first, rest, shapes, run="one")
    sums = Sums(nodes, algorithm=stage, run="one")
    bounds = dict.fromkeys(shapes, 1e8)
    found = sums.sum(stage, then, shapes, bounds)
    new = Sums(nodes_in(tmp_path / "new", noise_seed=0), algorithm=stage).sum(stage, then, shapes, bounds)
    for name, a in found.items():
        np.testing.assert_array_equal(a, new[name])


@pytest.mark.slow
@pytest.mark.parametrize("before", ["nothing", "an upload that nobody sums"])
def test_one_client_that_was_asked_once_more_is_noticed(before, tmp_path):
    """A message that the others have never seen: an upload of which no sum is taken, or a round that they miss."""
    first, _, then, shapes = ASKED["consensus_rpca"]
    bounds, nodes = dict.fromkeys(shapes, 1e8), nodes_in(tmp_path)
    if before == "nothing":
        # A sum of one client is refused, but its memory has changed.
        with pytest.raises(Exception, match="at least 3"):
            Sums(nodes, algorithm="consensus_rpca", run="one").sum(
                "consensus_rpca", first, shapes, bounds, lost=[i for i in range(len(SHARDS)) if i != VICTIM]
            )
    else:
        primed(nodes, "consensus_rpca", first, consensus(0), shapes, run="one")
    sums = Chosen(nodes, (), algorithm="consensus_rpca", run="one")
    with pytest.raises(ProtocolError, match="noise"):
        sums.sum("consensus_rpca", then, shapes, bounds)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["memory_dir", "context"])
def test_memory_from_unmasked_messages_is_not_used_under_masks(kept, tmp_path):
    """A node that answers without masks too: its memory is moved by a plain message of the same run."""
    first, _, then, shapes = ASKED["consensus_rpca"]
    nodes = nodes_in(tmp_path, masked_only=False)
    if kept == "context":
        nodes = [Node(i, X, allow=["consensus_rpca"]) for i, X in enumerate(SHARDS)]
    nodes[VICTIM].ask("consensus_rpca", first, run="one")
    sums = Sums(nodes, algorithm="consensus_rpca", run="one")
    total = sums.sum("consensus_rpca", then, shapes, dict.fromkeys(shapes, 1e8))
    assert error_of(total["B"], TRUTH) > 0.5
    assert not total["B"].any()  # No client has a V, and the message asks for no step.
    nodes[VICTIM].ask("consensus_rpca", first, run="one", number=10**6)
    assert sums.nodes is nodes
    # In the middle of a set-up, this ends the set-up for the victim.
    with pytest.raises(Exception, match=r"The secrets|mask"):
        sums.sum("consensus_rpca", then, shapes, dict.fromkeys(shapes, 1e8))


def numbered_step(number, *, lap=0, P=U):
    return {"P": P, "block": U, **numbers(step=number, lap=lap, refine=0)}


@pytest.mark.slow
def test_the_batch_of_a_stream_is_no_way_round_either(tmp_path):
    """The others are asked for a step at which they have no rows; then all for the one that the victim stands at."""
    shapes = dict.fromkeys(("rows", "left", "misfit", "energy", "deficient", "outliers", "missing"), ()) | {"S": (D, P)}
    bounds = dict.fromkeys(shapes, 1e8)
    nodes = signed(tmp_path, [Stream([X[:40], X[40:]]) for X in SHARDS], allow=["st_miss"])
    primed(nodes, "st_miss", numbered_step(1), numbered_step(99), shapes, run="one")
    sums = Sums(nodes, algorithm="st_miss", run="one")
    total = sums.sum("st_miss", numbered_step(1), shapes, bounds)
    every = sum(X[40:].T @ X[40:] @ U for X in SHARDS)
    assert error_of(total["S"], every) < 1e-9
    assert total["rows"] == sum(len(X) - 40 for X in SHARDS)
