"""How near each algorithm comes to the full SVD of the pooled, globally centered rows of three unlike clients."""

from __future__ import annotations

import numpy as np
from builders import pooled, sine, three_clients

from benchmarks import table
from flower_pca import simulate

SEEDS = range(5)
ALGORITHMS = ("krylov", "ssi", "local_power", "faps", "uda", "wda", "dr_svd")


def row(name: str) -> list[object]:
    """The worst sine and variance over the seeds, and the range of messages."""
    sines, variances, messages = [], [], []
    for seed in SEEDS:
        problem = three_clients(seed)
        truth = pooled(problem.shards)
        stop = {} if name in ("uda", "wda", "dr_svd") else {"tol": 1e-10}
        result = simulate(name, problem.shards, n_components=problem.k, seed=seed, **stop)
        sines.append(sine(truth.components[: problem.k], result.components_))
        wanted = truth.variances[: problem.k]
        variances.append(np.max(np.abs(result.explained_variance_ / wanted - 1.0)))
        messages.append(len(result.history))
    return [name, f"{max(sines):.1e}", f"{max(variances):.1e}", f"{min(messages)} to {max(messages)}"]


if __name__ == "__main__":
    head = ["algorithm", "sine of the largest angle", "relative error of the variances", "messages"]
    print(table(head, [row(name) for name in ALGORITHMS]))
