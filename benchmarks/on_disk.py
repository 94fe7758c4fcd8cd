"""Rows in a file that is larger than the memory that the run may take: every kind of file, beside IncrementalPCA.

Run: python -m benchmarks.on_disk FOLDER [--rows 2200000] [--columns 480] [--gigabytes 1]

Each run is a process of its own whose memory is limited (RLIMIT_DATA). FOLDER needs room for two files of the size of
the rows; each file is deleted after its run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

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
    parser.add_argument("--one", help="do one run, as a process of its own does")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.folder, given.gigabytes, given.answers)))
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
        words = [sys.executable, "-m", "benchmarks.on_disk", str(path), "--one", kind]
        # Arrow's own pool of memory reserves a gigabyte at once, whatever it uses of it.
        environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        words += ["--gigabytes", str(given.gigabytes), "--answers", given.answers]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
        if path != plain:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if done.returncode:
            print(f"{kind}: {done.stderr.strip()[-2000:]}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        V = np.array(found.pop("components"))
        reference = V if reference is None else reference
        if V.shape == reference.shape:  # The cells of .h5ad are other rows.
            sines = np.sqrt(np.maximum(1.0 - np.sum(V * reference, axis=1) ** 2, 0.0))
            found["largest sine to the first kind"] = float(f"{sines.max():.1e}")
            found["same bits"] = bool((reference == V).all())
        print(kind, found, flush=True)


def one(kind: str, path: Path, gigabytes: float, answers: str) -> dict[str, object]:
    """One run under the limit: processor seconds, memory beside mapped files, messages, components."""
    limit = int(gigabytes * 2**30)
    if kind == "incremental":
        from sklearn.decomposition import IncrementalPCA

        X = np.load(path, mmap_mode="r")
    else:
        from flower_pca import simulate
        from flower_pca.data import partition, sources

        loaded = sources.table(str(path)) if kind != "h5" else sources.table(f"h5(path={str(path)!r})")
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    began, wall = time.process_time(), time.monotonic()
    if kind == "incremental":
        # `fit` copies a mapped file into memory as a whole, in scikit-learn 1.9.
        model, batch = IncrementalPCA(K), 10 * X.shape[1]
        for i in range(0, len(X) - K, batch):
            model.partial_fit(X[i : i + batch])
        components, messages = model.components_, 0
    else:
        shards = partition.deal(loaded, "contiguous", CLIENTS)
        result = simulate("krylov", shards, n_components=K, tol=1e-6, answers=answers)
        components, messages = result.components_, len(result.history)
    return {
        "processor seconds": round(time.process_time() - began, 1),
        "seconds": round(time.monotonic() - wall, 1),
        "MB in memory": round(anonymous() / 1e3),
        "messages": messages,
        "components": np.asarray(components, dtype=float).tolist(),
    }


def anonymous() -> int:
    """The memory of this process without mapped files, in kB: the most that it was is not known, but what it is is."""
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
