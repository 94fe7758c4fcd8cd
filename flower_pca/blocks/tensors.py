"""Tensors of torch and similar packages, which numpy can read once they are detached and in ordinary memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import in_one_line


def is_tensor(X: Any) -> bool:
    """Return whether X is a tensor, which can be detached and copied to ordinary memory."""
    return all(hasattr(X, what) for what in ("detach", "cpu", "numpy"))


def in_memory(X: Any, who: str) -> Array:
    """Return the entries of a tensor, without a copy if it is dense and in ordinary memory."""
    try:
        plain = X.detach().cpu()
        # numpy has no bfloat16; single precision holds all of its numbers.
        if str(plain.dtype) == "torch.bfloat16":
            plain = plain.float()
        rows = np.asarray(plain.numpy())
    except (TypeError, RuntimeError) as error:
        remedy = "Give X.to_dense(), or a scipy sparse matrix"
        raise DataError(f"The tensor of {who} cannot be read: {in_one_line(error)}. {remedy}.") from error
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise DataError(
            f"The tensor of {who} has the shape {rows.shape} and the type {plain.dtype}. Give one row of real numbers "
            "per sample, as X.reshape(len(X), -1) does."
        )
    return rows
