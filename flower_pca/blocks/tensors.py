"""Read tensors of torch and similar packages, which must be detached and copied to ordinary memory for numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from flower_pca.base.errors import DataError
from flower_pca.base.linalg import Array
from flower_pca.base.shown import in_one_line


def is_tensor(X: Any) -> bool:
    """Return whether X is a tensor, that is, whether it can be detached and copied to ordinary memory."""
    return all(hasattr(X, what) for what in ("detach", "cpu", "numpy"))


def tensor_as_array(X: Any, who: str) -> Array:
    """Return the entries of a tensor, without a copy if it is dense and in ordinary memory."""
    try:
        plain = X.detach().cpu()
        # numpy has no bfloat16, but single precision holds all numbers of this type.
        if str(plain.dtype) == "torch.bfloat16":
            plain = plain.float()
        rows = np.asarray(plain.numpy())
    except (TypeError, RuntimeError) as error:
        remedy = "Give X.to_dense(), or a scipy sparse matrix"
        raise DataError(f"The tensor of {who} cannot be read: {in_one_line(error)}. {remedy}.") from error
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise DataError(
            f"The tensor of {who} has the shape {rows.shape} and the type {plain.dtype}, but it must have one row of "
            "real numbers per sample. Give X.reshape(len(X), -1), for example."
        )
    return rows
