"""Different columns of the same people at several clients: the tables, and LAPACK's answer to them pooled."""

from dataclasses import replace

import numpy as np
import pandas as pd
from builders import falling

from flower_pca.names.table import Table

X = falling(90, 12, seed=3) + np.arange(12.0)
PARTS = [X[:, :5], X[:, 5:6], X[:, 6:]]
K = 3
PEOPLE = [f"P{i:03d}" for i in range(len(X))]


def reference(table, *, center=True, scale=None):
    """Scores, components and variances of the pooled table by LAPACK; gaps are filled with their column's mean."""
    mean = np.nanmean(table, axis=0)
    divisor = {None: 1.0, "std": np.nanstd(table, axis=0), "max_abs": np.nanmax(np.abs(table), axis=0)}[scale]
    F = np.where(np.isnan(table), mean, table)
    F = (F - mean if center else F) / divisor
    U, s, Vt = np.linalg.svd(F, full_matrices=False)
    signs = np.sign(U[np.abs(U).argmax(axis=0), np.arange(U.shape[1])])
    return U * s * signs, Vt * signs[:, None], s**2 / (len(table) - 1)


def frames():
    """A hospital's and a laboratory's data frames, the latter in another order."""
    hospital = pd.DataFrame(X[:, :5], columns=["age", "weight", "beat", "size", "temp"], index=PEOPLE)
    lab = pd.DataFrame(X[:, 5:], columns=[f"gene{j}" for j in range(7)], index=PEOPLE)
    return {"hospital": hospital, "lab": lab.sample(frac=1.0, random_state=0)}


def tables_in_rows():
    """The same tables with their rows one after another in memory, as files are read; a frame keeps columns so."""
    tables = {site: Table.of(frame) for site, frame in frames().items()}
    return {site: replace(table, values=np.ascontiguousarray(table.values)) for site, table in tables.items()}


def changed(site, change):
    return {name: change(table) if name == site else table for name, table in frames().items()}


def parties_written(folder):
    """A folder with a file for each party, whose first column says whose row it is."""
    folder.mkdir()
    for site, table in frames().items():
        table.rename_axis("patient").to_csv(folder / f"{site}.csv")
    return folder
