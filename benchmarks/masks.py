"""What masks cost: messages, bytes, and milliseconds of a client and of the server. `python -m benchmarks.masks`."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np

from benchmarks import table
from flower_pca import History, MaskedSums, STMiss, assembly, client_half, make, simulate, track
from flower_pca.core.stage import Reply
from flower_pca.masking import messages
from flower_pca.rows.local import LocalData
from sims.over_air import moving

D, P, ROWS, ROUNDS = 784, 20, 50, 3
STEPS = ("keys", "shares", "upload", "unmask")
_BESIDE = ("keys", "exchanges", "key", "exchange", "shares", "selves", "peers", "past")
KEYS = tuple(f"mask.{name}" for name in _BESIDE)


def shards(clients: int) -> list[Any]:
    """Rows like those of small pictures: 784 columns, a spectrum that falls slowly."""
    rng = np.random.default_rng(clients)
    return [rng.standard_normal((ROWS, D)) * 0.98 ** np.arange(D) for _ in range(clients)]


def driven(parts: list[Any], masks: MaskedSums) -> tuple[Counter[str], Counter[str], int, History]:
    """A run by hand: seconds by step, of all clients and of the server; bytes of keys; the history."""
    nodes, memories = [LocalData(X) for X in parts], [{} for _ in parts]  # type: ignore[var-annotated]
    run = assembly.run(assembly.config(make("ssi", max_rounds=ROUNDS), mask=masks, n_components=P))
    client, server, keys = Counter(), Counter(), 0  # type: ignore[var-annotated]
    while True:
        began = time.process_time()
        message = run.pending(range(len(parts)))
        if message is None:
            return client, server, keys, run.history
        step = STEPS[int(message.arrays["mask.step"])]
        server[step] += time.process_time() - began
        replies = []
        for i in message.to:
            arrays, data = message.arrays_for(i), nodes[i].in_frame(message.frame)
            if (stage := messages.inner_stage(arrays)) is not None:  # what it takes without masks, and to warm up
                began = time.process_time()
                client_half.answer(stage, messages.stage_arrays(arrays), data, {})
                client[step] -= time.process_time() - began
            began = time.process_time()
            up, memories[i] = client_half.answer(message.stage, arrays, data, memories[i])
            client[step] += time.process_time() - began
            replies.append(Reply(i, message.number, up))
            keys += sum(a.nbytes for both in (arrays, up) for name, a in both.items() if name in KEYS)
        began = time.process_time()
        run.advance(replies)
        server[step] += time.process_time() - began


def row(clients: int, masks: MaskedSums) -> list[object]:
    """The figures of one size."""
    parts = shards(clients)
    plain = simulate("ssi", parts, n_components=P, max_rounds=ROUNDS).history
    client, server, keys, masked = driven(parts, masks)
    sums = len(plain) + 1  # the opening takes two
    each = [1e3 * client[step] / clients / (1 if step in ("keys", "shares") else sums) for step in STEPS]
    told, before = masked.bytes_up + masked.bytes_down, plain.bytes_up + plain.bytes_down
    return [
        f"{clients} ({masks.neighbor_count(clients)})" + ("" if masks.self_masks else ", no self-masks"),
        f"{len(plain)} and {len(masked)}",
        f"{(told - keys) / before:.3f}",
        f"{keys / clients / sums / 1e3:.1f}",
        *(f"{ms:.1f}" for ms in each),
        f"{1e3 * (server['upload'] + server['unmask']) / sums:.0f}",
    ]


def tracked(clients: int, tracker: STMiss) -> list[object]:
    """The same of a run of six steps, keys included."""
    problem = moving.piecewise(n=1000, r=10, d=360, change=180, rho=0.1, seed=0)
    plain, masked = (track(tracker, problem.batches(clients), n_components=10, mask=mask) for mask in (False, True))
    told, before = (r.history.bytes_up + r.history.bytes_down for r in (masked, plain))
    spans = zip(masked.components_, plain.components_, strict=True)
    apart = max(np.linalg.norm(A - (A @ B.T) @ B, 2) for A, B in spans)
    messages = f"{len(plain.history)} and {len(masked.history)}"
    return [tracker.spec, clients, messages, f"{told / before:.3f}", f"{apart:.0e}"]


def main() -> None:
    """Print the tables."""
    sizes = [(clients, MaskedSums()) for clients in (5, 30, 200)]
    sizes += [(200, MaskedSums(neighbors=k)) for k in (20, 40)]
    sizes += [(30, MaskedSums(self_masks=False)), (200, MaskedSums(neighbors=20, self_masks=False))]
    head = ["clients (neighbors)", "messages", "bytes / unmasked", "kB of keys a sum", *(f"ms {s}" for s in STEPS)]
    print(table([*head, "ms server a sum"], [row(*size) for size in sizes]))
    runs = [(clients, tracker) for tracker in (STMiss(), STMiss(solver="power")) for clients in (5, 10)]
    print(
        table(
            ["tracker", "clients", "messages", "bytes / unmasked", "largest sine between the spaces"],
            [tracked(*run) for run in runs],
        )
    )


if __name__ == "__main__":
    main()
