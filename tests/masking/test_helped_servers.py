"""Test what a server that lies about drop-outs gets with the help of one client: both secrets of another one."""

import numpy as np
import pytest
from builders import two_lead
from masked import Run
from test_protocol import upload

from flower_pca import client_half
from flower_pca.masking import fixed, messages, primitives
from flower_pca.masking.messages import Phase

FIVE, VICTIM, HELPER, SUM = two_lead(5), 2, 0, 1
NEAR = 40  # steps of fixed point: two draws of the noise that blurs its last digits


def shares_of_the_victim(run, helpers):
    """Shares of the victim's two secrets: one client and the victim hear that it has survived, two that it has not.

    Clients that help the server give away both.
    """
    told = {VICTIM: [True], 1: [True], HELPER: [True, False] if HELPER in helpers else [True], 3: [False], 4: [False]}
    found = {"mask.selves": [], "mask.keys": []}
    for client, stories in told.items():
        peers = [i for i in range(5) if i != client]
        for survived in stories:
            gone = [] if survived else [VICTIM]
            asked = {
                "mask.step": np.array(int(Phase.UNMASK)),
                "mask.setup": run.message().arrays["mask.setup"],
                "mask.number": np.array(SUM),
                "mask.survived": np.array([i for i in peers if i not in gone], dtype=np.int64),
                "mask.dropped": np.array(gone, dtype=np.int64),
            }
            # A client that helps answers twice, so its memory is a copy.
            up, _ = client_half.answer("masked", asked, run.nodes[client], dict(run.memories[client]))
            if not survived:
                found["mask.keys"].append((client, up["mask.keys"][0].tobytes()))
                continue
            place = [client, *(i for i in peers if i not in gone)].index(VICTIM)
            found["mask.selves"].append((client, up["mask.selves"][place].tobytes()))
    return found


@pytest.mark.parametrize("helpers", [(), (HELPER,)], ids=["no help", "one client helps"])
def test_one_client_of_five_helps_a_lying_server_to_both_secrets_of_another(helpers):
    """Three shares of each are needed, and five clients give five; with the help of one, there are six."""
    run = Run(FIVE, "ssi").until("upload", SUM)
    message = run.message()
    needed = run.session.group.needed_uploads
    run.sent.append(message)
    run.came.append({i: run.answer(message, i).arrays for i in message.to})
    found = shares_of_the_victim(run, helpers)
    assert needed == 3
    assert sum(map(len, found.values())) == 5 + len(helpers)
    assert (min(map(len, found.values())) >= needed) is bool(helpers)
    if not helpers:
        return
    selves, key = (primitives.restore_secret(sorted(found[kind])[:needed]) for kind in ("mask.selves", "mask.keys"))
    y = upload(run, VICTIM, key, selves)
    up, _ = run.session.position.stage.client(messages.stage_arrays(message.arrays), run.nodes[VICTIM], {})
    truth = fixed.encode(up, messages.bounds_in_message(message.arrays), 5)
    assert np.abs((y - truth).view(np.int64)).max() < NEAR
