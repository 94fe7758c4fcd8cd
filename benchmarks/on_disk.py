"""Rows in a file that is larger than the memory that the run may take: every kind of file, beside IncrementalPCA.

Run: python -m benchmarks.on_disk FOLDER [--rows 2200000] [--columns 480] [--gigabytes 1] [--at-node | --at-supernode]

Each run is a process of its own whose memory is limited (RLIMIT_DATA) before it opens the file. With `--at-node`, each
file is then read by a node, to which all rows belong and which answers from fixed statistics. The server is in the same
process. With `--at-supernode`, the ClientApps of a SuperNode read the file. Each of them is a process of its own under
the limit, for one message. FOLDER needs room for two files of the size of the rows; each file but rows.npy is deleted
after its run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

K, CLIENTS, PIECE = 10, 3, 20_000
KINDS = ("npy", "h5", "zarr", "parquet", "h5ad")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=2_200_000)
    parser.add_argument("--columns", type=int, default=480)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, "incremental"])
    parser.add_argument("--answers", choices=("rows", "fixed"), default="rows", help="fixed: as nodes answer")
    parser.add_argument("--at-node", action="store_true", help="run on each file in a process, and then at a node")
    parser.add_argument("--at-supernode", action="store_true", help="run on each file at a SuperNode only")
    parser.add_argument("--where", choices=("process", "node"), help="where --one runs")
    parser.add_argument("--most", type=int, default=500, help="the most messages of a run at a node")
    parser.add_argument("--one", help="do one run, as a process of its own does")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.folder, given)))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    plain = given.folder / "rows.npy"
    if not plain.exists():
        write_npy(plain, given.rows, given.columns)
    print(
        f"{given.rows:,} x {given.columns} float32, {plain.stat().st_size / 1e9:.1f} GB, at most {given.gigabytes} GB"
    )
    reference = None
    for kind in given.kinds:
        path = plain if kind in ("npy", "incremental") else given.folder / f"rows.{kind}"
        if kind not in ("npy", "incremental"):
            WRITERS[kind](np.load(plain, mmap_mode="r"), path)
        wheres = ("process", "node") if given.at_node and kind != "incremental" else ("process",)
        if given.at_supernode:
            wheres = ()
            print(f"{kind} at a SuperNode", at_supernode(kind, path, given), flush=True)
        for where in wheres:
            reference = run_one(kind, path, where, given, reference)
        if path != plain:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def run_one(kind: str, path: Path, where: str, given: argparse.Namespace, reference):
    """Print what a run in a process of its own says. Return the components that the next runs are compared with."""
    words = [sys.executable, "-m", "benchmarks.on_disk", str(path), "--one", kind, "--where", where]
    words += ["--gigabytes", str(given.gigabytes), "--answers", given.answers, "--most", str(given.most)]
    # Arrow's own pool of memory reserves a gigabyte at once, whatever it uses of it.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        print(f"{kind} in a {where}: {done.stderr.strip()[-2000:]}", flush=True)
        return reference
    found = json.loads(done.stdout.splitlines()[-1])
    V = np.array(found.pop("components"))
    reference = V if reference is None else reference
    if V.shape == reference.shape:  # The cells of .h5ad are other rows.
        sines = np.sqrt(np.maximum(1.0 - np.sum(V * reference, axis=1) ** 2, 0.0))
        found["largest sine to the first kind"] = float(f"{sines.max():.1e}")
        found["same bits"] = bool((reference == V).all())
    print(f"{kind} in a {where}", found, flush=True)
    return reference


def one(kind: str, path: Path, given: argparse.Namespace) -> dict[str, object]:
    """One run under the limit: processor seconds, memory beside mapped files, messages, components."""
    limit = int(given.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    threading.Thread(target=watch, daemon=True).start()
    began, wall = time.process_time(), time.monotonic()
    if kind == "incremental":
        from sklearn.decomposition import IncrementalPCA

        # `fit` copies a mapped file into memory as a whole, in scikit-learn 1.9.
        X = np.load(path, mmap_mode="r")
        model, batch = IncrementalPCA(K), 10 * X.shape[1]
        for i in range(0, len(X) - K, batch):
            model.partial_fit(X[i : i + batch])
        components, messages, status = model.components_, 0, ""
    else:
        name = name_of(kind, path)
        result = at_node(name, given) if given.where == "node" else in_process(name, given)
        components, messages, status = result.components_, len(result.history), str(result.status)
        if given.where == "node" and result.feature_names_in_ is not None:
            # The columns of nodes are in alphabetical order: c1, c10, c11, ..., c2.
            components = components[:, np.argsort([len(name) for name in result.feature_names_in_], kind="stable")]
    return {
        "processor seconds": round(time.process_time() - began, 1),
        "seconds": round(time.monotonic() - wall, 1),
        "most MB in memory": round(MOST[0] / 1e3),
        "messages": messages,
        "status": status,
        "components": np.asarray(components, dtype=float).tolist(),
    }


def in_process(name: str, given: argparse.Namespace):
    from flower_pca import simulate
    from flower_pca.data import partition, sources

    shards = partition.deal(sources.table(name), "contiguous", CLIENTS)
    return simulate("krylov", shards, n_components=K, tol=1e-6, answers=given.answers)


def at_node(name: str, given: argparse.Namespace):
    from fake_grid import FakeGrid, in_a_run

    from flower_pca import strategies
    from flower_pca.clients import client_app
    from flower_pca.clients.policy.rules import allowed_names
    from flower_pca.data import sources

    grid = FakeGrid(client_app(lambda context: sources.make(name), allow=allowed_names()), 1)
    strategy = strategies.Krylov(n_components=K, tol=1e-6, min_nodes=1, max_rounds=given.most)
    with in_a_run():
        return strategy.fit(grid)


# The app of the SuperNode. Each of its processes writes its largest memory without mapped files and its processor time.
CLIENT_APP = """
import os, resource, sys, threading, time
from pathlib import Path

resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
sys.path.insert(0, {root!r})
from benchmarks.on_disk import MOST, anonymous
from flower_pca.clients import client_app
from flower_pca.clients.policy.rules import allowed_names
from flower_pca.data import sources


def watch():
    while True:
        MOST[0] = max(MOST[0], anonymous())
        unready = Path({folder!r}) / f"{{os.getpid()}}.unready"
        unready.write_text(f"{{MOST[0]}} {{time.process_time()}}")
        unready.replace(unready.with_suffix(".figures"))
        time.sleep(0.05)


threading.Thread(target=watch, daemon=True).start()
app = client_app(lambda context: sources.make({name!r}), allow=allowed_names())
"""


def at_supernode(kind: str, path: Path, given: argparse.Namespace) -> dict[str, object]:
    """One run with a SuperLink and a SuperNode: the figures of all ClientApps together."""
    from federation import Federation

    limit = int(given.gigabytes * 2**30)
    with tempfile.TemporaryDirectory() as folder:
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        with Federation(folder, [], environment=environment) as federation:
            root, name = str(Path(__file__).parents[1]), name_of(kind, path.absolute())
            app = CLIENT_APP.format(limit=limit, root=root, folder=folder, name=name)
            (federation.app / "trial" / "client_app.py").write_text(app)
            federation.present(0)
            began = time.monotonic()
            words = {"n_components": K, "tol": 1e-6, "min_nodes": 1, "max_rounds": given.most, "round_timeout": 3000.0}
            run = federation.run("Krylov", **words)
            ended = (run.folder / "result.npz", run.folder / "error")
            while not any(map(Path.exists, ended)) and time.monotonic() < began + 3600:
                time.sleep(0.2)
            seconds = time.monotonic() - began
            result = run.result()
        figures = [tuple(map(float, file.read_text().split())) for file in Path(folder).glob("*.figures")]
    return {
        "processor seconds": round(sum(processor for _, processor in figures), 1),
        "seconds": round(seconds, 1),
        "most MB in memory": round(max(most for most, _ in figures) / 1e3),
        "messages": len(result.history),
        "bytes": [(r.stage, r.bytes_down, r.bytes_up) for r in result.history],
        "status": str(result.status),
        "variances": result.explained_variance_.tolist(),
    }


def name_of(kind: str, path: Path) -> str:
    """The file as a source of rows."""
    return str(path) if kind != "h5" else f"h5(path={str(path)!r})"


MOST = [0]  # the largest memory without mapped files so far, in kB


def watch() -> None:
    while True:
        MOST[0] = max(MOST[0], anonymous())
        time.sleep(0.05)


def anonymous() -> int:
    """The memory of this process without mapped files, in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def write_npy(path: Path, n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((2 * K, d)).astype(np.float32) * np.linspace(3, 0.5, 2 * K, dtype=np.float32)[:, None]
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for i in range(0, n, PIECE):
        m = min(PIECE, n - i)
        scores = rng.standard_normal((m, 2 * K), dtype=np.float32)
        rows[i : i + m] = scores @ mixing + rng.standard_normal((m, d), dtype=np.float32) + 1.0
    rows.flush()


def write_h5(rows, path):
    import h5py

    with h5py.File(path, "w") as file:
        stored = file.create_dataset("X", shape=rows.shape, dtype=rows.dtype, chunks=(4096, rows.shape[1]))
        for i in range(0, len(rows), 4096):
            stored[i : i + 4096] = rows[i : i + 4096]


def write_zarr(rows, path):
    import zarr

    stored = zarr.create_array(str(path), shape=rows.shape, dtype=rows.dtype, chunks=(4096, rows.shape[1]))
    for i in range(0, len(rows), 4096):
        stored[i : i + 4096] = rows[i : i + 4096]


def write_parquet(rows, path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"c{j}" for j in range(rows.shape[1])]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as out:
        for i in range(0, len(rows), PIECE):
            part = np.asarray(rows[i : i + PIECE])
            out.write_table(pa.table([part[:, j] for j in range(part.shape[1])], schema=schema))


def write_h5ad(rows, path):
    """Cells with few counts, of the same size in bytes, as CSR: 37 entries of each 1,000 are stored."""
    import h5py
    import scipy.sparse as sp

    d, text = 2000, h5py.string_dtype()
    n = int(rows.nbytes / (0.037 * d * 8))
    rng = np.random.default_rng(1)
    rates = rng.gamma(0.3, 0.13, d)
    ends_of_genes = np.cumsum(rates) / rates.sum()
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (n, d)
        entries = {
            name: group.create_dataset(name, (0,), kind, maxshape=(None,), chunks=(2**18,))
            for name, kind in (("data", np.float32), ("indices", np.int32))
        }
        ends = [np.zeros(1, dtype=np.int64)]
        for i in range(0, n, PIECE):
            m = min(PIECE, n - i)
            # Genes drawn for each molecule of a cell are Poisson counts, and much faster to draw than each count.
            molecules = rng.poisson(rates.sum() * rng.gamma(4, 0.25, m))
            genes = np.searchsorted(ends_of_genes, rng.random(molecules.sum()))
            cells = np.repeat(np.arange(m), molecules)
            part = sp.coo_array((np.ones(len(genes), np.float32), (cells, genes)), shape=(m, d)).tocsr()
            for name, stored in entries.items():
                stored.resize((ends[-1][-1] + part.nnz,))
                stored[ends[-1][-1] :] = getattr(part, name)
            ends.append(ends[-1][-1] + part.indptr[1:].astype(np.int64))
        group["indptr"] = np.concatenate(ends)
        for part, size, stem in (("obs", n, "cell"), ("var", d, "gene")):
            frame = file.create_group(part)
            frame.attrs["_index"] = "_index"
            frame.create_dataset("_index", data=[f"{stem}{i}" for i in range(size)], dtype=text)


WRITERS = {"h5": write_h5, "zarr": write_zarr, "parquet": write_parquet, "h5ad": write_h5ad}

if __name__ == "__main__":
    main()
