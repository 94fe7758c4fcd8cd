"""Parquet files: tables whose columns have names and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flower_pca.base.extras import needing
from flower_pca.base.linalg import Array
from flower_pca.data.reading import chosen, reading, with_ids
from flower_pca.data.table import Table
from flower_pca.names.columns import no_numbers
from flower_pca.names.origin import Origin
from flower_pca.names.spelling import clean


def parquet(
    *, path: str, columns: Sequence[str] | None = None, beside: Sequence[str] = (), ids: str | None = None
) -> Table:
    """A parquet file. Needs pyarrow.

    Args:
        path: The file.
        columns: Names of the columns to use; all that are not beside, if left out.
        beside: Names of columns that are no features: labels, or whose row it is. They may be text.
        ids: The name of one that says whose row it is, for runs over columns of the same people. It may be text.
    """
    with needing("pyarrow", "to read this"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with reading(path, "a parquet file") as file, file.open("rb") as raw:
        source = pq.ParquetFile(raw)
        told = source.schema_arrow.names
        names = [clean(name) for name in told]
        features, apart, words = chosen(file, names, columns, with_ids(beside, ids))
        spelt = {name: told[names.index(name)] for name in (*features, *apart) if name}  # as the file has it
        table = source.read(columns=list(spelt.values()))
        kinds = {name: table.schema.field(spelt[name]).type for name in features}
        number = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
        bad = {
            name: f"{kind} in column {name}"
            for name, kind in kinds.items()
            if not any(is_one(kind) for is_one in number)
        }
        features = tuple(name for name in features if name not in bad)
        if bad and (columns is not None or not features):
            raise no_numbers(file, bad)
        words |= bad
        single = all(pa.types.is_float32(kinds[name]) or pa.types.is_float16(kinds[name]) for name in features)
        rows = np.empty((table.num_rows, len(features)), dtype=np.float32 if single and features else np.float64)
        for j, name in enumerate(features):
            rows[:, j] = table[spelt[name]].cast(pa.float64(), safe=False).to_numpy()
        values = {name: _decoded(table[spelt[name]]) for name in apart if name}
    return Table((rows,), features, values, words, str(file), Origin.of(file, len(rows))).identified(ids)


def _decoded(column: Any) -> Array:
    whole = column.combine_chunks()
    return np.asarray((whole.dictionary_decode() if hasattr(whole, "dictionary_decode") else whole).to_pylist())
