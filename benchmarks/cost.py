"""What the package adds: time per client and round over the bare numpy products, memory, and time to import.

Ratios of medians of processor time taken in one run; absolute times would say more of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import table
from flower_pca import client_half

REPEATS = 31


def _median(f: Callable[[], object]) -> float:
    import numpy as np

    times = []
    for _ in range(REPEATS + 3):
        began = time.process_time()
        f()
        times.append(time.process_time() - began)
    return float(np.median(times[3:]))


def clients() -> list[list[object]]:
    """Time of a client's half over that of the products in its formula; d=784, n_i=1000, p=20."""
    import numpy as np

    from flower_pca.rows.frame import Frame
    from flower_pca.rows.local import LocalData

    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((1000, 784)), np.linalg.qr(rng.standard_normal((784, 20)))[0]
    mean = X.mean(axis=0)
    centered, data = X - mean, LocalData(X)

    def power(steps: int) -> Callable[[], object]:
        def bare() -> object:
            V = Z
            for _ in range(steps - 1):
                V = np.linalg.qr(centered.T @ (centered @ V))[0]
            return centered.T @ (centered @ V)

        return bare

    def opening() -> object:
        D = X - X.mean(axis=0)
        return np.einsum("ij,ij->j", D, D), D.T @ (D @ Z)

    one, no = np.array(1), np.array(False)
    cases = {
        "krylov": ("krylov", {"B": Z}, power(1)),
        "ssi": ("ssi", {"Z": Z}, power(1)),
        "local_power, q=4": ("local_power", {"Z": Z, "steps": 4 * one, "aligned": ~no}, power(4)),
        "faps, 10 inner steps": ("faps", {"Z": Z, "inner_steps": 10 * one, "inner_tol": 0.0 * one}, power(11)),
        "opening": ("opening", {"block": Z, "peaks": no}, opening),
    }
    rows: list[list[object]] = []
    for label, (stage, arrays, bare) in cases.items():
        memory: dict[str, object] = {}

        def half(stage: str = stage, arrays: dict = arrays, memory: dict = memory) -> None:  # type: ignore[type-arg]
            _, kept = client_half.answer(stage, arrays, data.in_frame(Frame(mean.copy())), memory)
            memory.update(kept)

        rows.append([label, f"{_median(half) / _median(bare):.2f}"])
    return rows


def nodes(repeats: int = 5) -> list[list[object]]:
    """Processor time of a node that answers from fixed statistics, in bare products X'(XZ); p=20, rows of a kind each.

    The first message measures them (mean, C or R), the later ones do not; "rows" is a message that multiplies rows.
    """
    import numpy as np
    from scipy import sparse

    from flower_pca.rows.fixed import FixedData
    from flower_pca.rows.frame import Frame
    from flower_pca.rows.local import LocalData

    def spent(f: Callable[[], object]) -> float:
        began = time.process_time()
        f()
        return time.process_time() - began

    rng = np.random.default_rng(0)

    def thin(n: int, d: int, share: float) -> sparse.csr_array:
        return sparse.random_array((n, d), density=share, format="csr", rng=rng)

    kinds = {
        "dense, 20,000 x 784": rng.standard_normal((20_000, 784)),
        "dense, 300 x 3,000": rng.standard_normal((300, 3000)),
        "sparse, 20,000 x 784, 5 %": thin(20_000, 784, 0.05),
        "sparse, 300 x 3,000, 5 %": thin(300, 3000, 0.05),
        "sparse, 20,000 x 20,000, 0.2 %": thin(20_000, 20_000, 0.002),
    }
    rows: list[list[object]] = []
    for label, X in kinds.items():
        Z, frame = np.linalg.qr(rng.standard_normal((X.shape[1], 20)))[0], Frame(np.asarray(X.mean(axis=0)).ravel())
        bare = float(np.median([spent(lambda X=X, Z=Z: X.T @ (X @ Z)) for _ in range(repeats)]))
        cells: list[object] = [label]
        first = []
        for _ in range(3):
            data = LocalData(X)
            first.append(spent(lambda data=data, Z=Z: FixedData.of_rows(data).matmat(Z)))
        cells.append(f"{float(np.median(first)) / bare:.1f}")
        data = LocalData(X).in_frame(frame)
        FixedData.of_rows(data).matmat(Z)
        later = float(
            np.median([spent(lambda data=data, Z=Z: FixedData.of_rows(data).matmat(Z)) for _ in range(repeats)])
        )
        by_rows = float(np.median([spent(lambda data=data, Z=Z: data.matmat(Z, reuse=1)) for _ in range(repeats)]))
        rows.append([*cells, f"{later / bare:.2f}", f"{by_rows / bare:.2f}"])
    return rows


def many_clients(algorithm: str) -> None:
    """Peak memory of a run with 10,000 clients of 20 rows, d=100; printed by a process of its own."""
    import numpy as np

    from flower_pca import simulate

    X = np.random.default_rng(0).standard_normal((200_000, 100))
    simulate(algorithm, np.split(X, 10_000), n_components=5)
    # Not ru_maxrss, which begins with the memory of the process that has started this one.
    peak = Path("/proc/self/status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0]
    print(f"{int(peak) / 1024:.0f} {X.nbytes / 2**20:.0f}")


def imports(statement: str) -> float:
    """Median time of an import after numpy and scipy.linalg, over the time of those two."""
    import numpy as np

    code = (
        "import time; a = time.process_time(); import numpy, scipy.linalg; b = time.process_time();"
        f"{statement}; print((time.process_time() - b) / (b - a))"
    )
    with tempfile.TemporaryDirectory() as bytecode:  # as whatever is installed has it
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = bytecode
        command = [sys.executable, "-c", code]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True, env=env) for _ in range(10)]
    return float(np.median([float(run.stdout) for run in runs[1:]]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        many_clients(sys.argv[1])
        sys.exit()
    print(table(["a client's half", "time over the bare products"], clients()))
    heads = ["rows", "first message", "later ones", "products of rows"]
    print(table(heads, nodes()))
    for name in ("krylov", "uda"):
        command = [sys.executable, "-m", "benchmarks.cost", name]
        peak, size = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        print(f"{name}, 10,000 clients: peak {peak} MB, data {size} MB, bound {1.2 * float(size) + 200:.0f} MB")
    for statement in ("import flower_pca", "from flower_pca import simulate"):
        print(f"{statement}: {imports(statement):.2f} of numpy and scipy.linalg")
