"""Load data sets by name: from scikit-learn, from Hugging Face, or drawn at random from a seed."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, DataError, requiring
from flower_pca.base.labels import clean_name
from flower_pca.base.linalg import Array
from flower_pca.base.shown import in_one_line
from flower_pca.data.partition import sizes_by_weight
from flower_pca.data.reading import chosen_columns
from flower_pca.names.columns import unusable_columns_error
from flower_pca.names.table import Table

_BUNDLED: Final = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")


def sklearn(*, name: str) -> Table:
    """Load a data set that comes with scikit-learn. Its target becomes the label column y. Needs scikit-learn.

    Parameters
    ----------
    name : str
        The name of the data set: breast_cancer, diabetes, digits, iris, linnerud or wine.
    """
    checks.choice("The data set of scikit-learn", name, _BUNDLED)
    with requiring("scikit-learn", "to read this"):
        from sklearn import datasets
    bunch = getattr(datasets, f"load_{name}")()
    target = np.asarray(bunch.target)
    beside = {"y": target} if target.ndim == 1 else {}
    return Table(bunch.data, tuple(map(str, bunch.feature_names)), beside=beside)


def hugging_face(
    *,
    name: str,
    split: str = "train",
    subset: str | None = None,
    columns: Sequence[str] | None = None,
    beside: Sequence[str] = (),
) -> Table:
    """Load a data set from Hugging Face with flwr-datasets: numbers, vectors, or pictures as rows of pixels.

    Parameters
    ----------
    name : str
        The name of the data set, or the path of a local folder of csv, json or parquet files.
    split : str, default="train"
        The part of the data set.
    subset : str or None, default=None
        The configuration of the data set, if it has several.
    columns : sequence of str or None, default=None
        Names of the columns to use. By default, all columns that are not in `beside`.
    beside : sequence of str, default=()
        Names of columns that are not features, such as labels or row identifiers. They may hold text.
    """
    with requiring("flwr-datasets", "to read this"):
        from flwr_datasets import FederatedDataset
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # Progress bars go to stderr.
            federated = FederatedDataset(dataset=name, subset=subset, partitioners={split: 1}, shuffle=False)
            loaded = federated.load_split(split)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise DataError(
            f"The data set {name} of Hugging Face cannot be loaded ({in_one_line(error)}). Check its name, the split "
            "and the network connection."
        ) from error
    names = [clean_name(column) for column in loaded.column_names]
    features, apart, words = chosen_columns(name, names, columns, beside)
    if words:
        raise unusable_columns_error(name, words)
    columns = (*features, *apart)
    spelt = {column: loaded.column_names[names.index(column)] for column in columns}
    numeric = loaded.select_columns([spelt[feature] for feature in features]).with_format("numpy")
    blocks = {feature: _column_as_block(numeric[:][spelt[feature]]) for feature in features}
    bad = {
        feature: f"{_shown_first(block)} in column {feature}"
        for feature, block in blocks.items()
        if block.dtype.kind not in "fiub"
    }
    if bad:
        raise unusable_columns_error(name, bad)
    read = loaded.select_columns([spelt[column] for column in apart]).with_format(None)[:]
    values = {column: np.asarray(read[spelt[column]]) for column in apart}
    single = all(block.shape[1] == 1 for block in blocks.values())
    return Table(np.hstack(list(blocks.values())), features if single else None, beside=values)


def _column_as_block(values: Any) -> Array:
    """Return a column as an n x m array. Each of its n entries may be an array of any shape with m numbers."""
    block = np.asarray(values)
    return block.reshape(len(block), -1)


def _shown_first(block: Array) -> str:
    if block.size:
        return f"{str(block.flat[0])[:40]!r}"
    return str(block.dtype)


def geometric(*, n: int = 2000, d: int = 100, xi: float = 1.01, seed: int = 0) -> Table:
    """Draw rows with geometrically decreasing singular values: s_j = xi^(1-j)."""
    checks.number("xi", xi, least=1.0, most=1e3, remedy="Use 1.01.")
    return _with_spectrum(n, d, lambda j: float(xi) ** -j, seed)


def arithmetic(*, n: int = 2000, d: int = 100, kappa: float = 100.0, seed: int = 0) -> Table:
    """Draw rows with linearly decreasing singular values from 1 to 1/kappa: s_j = 1 - (j-1)/(d-1) (1 - 1/kappa)."""
    checks.number("kappa", kappa, least=1.0, most=1e15, remedy="Use 100.")
    return _with_spectrum(n, d, lambda j: 1.0 - j / max(d - 1, 1) * (1.0 - 1.0 / kappa), seed)


# These are the largest allowed values of the parameters that make clients differ.
_MOST: Final = {"means": 1e6, "sizes": 20.0, "spectra": 1.0, "tilt": 1e6}


def synthetic(
    *,
    n: int = 2000,
    d: int = 30,
    clients: int = 10,
    means: float = 0.5,
    sizes: float = 1.0,
    spectra: float = 0.3,
    tilt: float = 0.1,
    seed: int = 0,
) -> Table:
    """Draw rows of clients with different distributions. The label column client holds the number of the client.

    As in measured data, variances follow a power law, and clients share a few strong directions.

    Parameters
    ----------
    n : int, default=2000
        The number of rows of all clients together.
    d : int, default=30
        The number of columns.
    clients : int, default=10
        The number of clients.
    means : float, default=0.5
        The differences between the means of clients, in standard deviations. 0 makes the means equal.
    sizes : float, default=1.0
        The number of rows of client i is proportional to (i + 1)^-sizes. 0 makes the clients equally large.
    spectra : float, default=0.3
        The standard deviation of a client's j-th direction is j^-e, with e between 1 - spectra and 1 + spectra. 0 gives
        all clients the same spectrum.
    tilt : float, default=0.1
        The size of the random rotation that turns the common directions into the directions of a client. With 0, all
        clients have the same directions.
    seed : int, default=0
        The seed of the random numbers.
    """
    for what, value in {"n": n, "d": d, "clients": clients}.items():
        checks.integer(what, value, least=1)
    checks.integer("seed", seed)
    for what, amount in {"means": means, "sizes": sizes, "spectra": spectra, "tilt": tilt}.items():
        checks.number(what, amount, least=0.0, most=_MOST[what], remedy="Use 0 for clients with the same distribution.")
    if n < clients:
        raise ConfigError(
            f"n is {n}, but each of the {clients} clients needs at least one row. Use fewer clients.",
            setting="n",
            value=n,
        )
    rng = np.random.default_rng(seed)
    common = np.linalg.qr(rng.standard_normal((d, d)))[0]
    weights = 1.0 / np.arange(1, clients + 1) ** float(sizes)
    counts = sizes_by_weight(n, weights)
    parts = []
    for count in counts:
        exponent = rng.uniform(1.0 - spectra, 1.0 + spectra)
        deviations = np.arange(1, d + 1) ** -exponent
        tilted = tilt / np.sqrt(d) * rng.standard_normal((d, d))
        turn = np.linalg.qr(np.eye(d) + tilted)[0]
        mean = common @ (means * deviations * rng.standard_normal(d))
        noise = 0.02 * rng.standard_normal((count, d))
        along = rng.standard_normal((count, d)) * deviations
        parts.append(mean + along @ (common @ turn).T + noise)
    return Table.together(list(map(Table, parts)), {"client": np.repeat(np.arange(clients), counts)})


def _with_spectrum(n: int, d: int, law: Callable[[Array], Array], seed: int) -> Table:
    """Draw the rows V diag(s) U', with the singular values s that `law` gives for the positions 0 to d - 1.

    U (d x d) and V (n x d) are orthonormalized matrices of uniform(-1, 1) numbers.
    """
    checks.integer("d", d, least=1)
    checks.integer("n", n, least=d, remedy="Use at least as many rows as columns.")
    checks.integer("seed", seed)
    spectrum: Array = np.asarray(law(np.arange(d, dtype=np.float64)))
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.uniform(-1.0, 1.0, (d, d)))[0]
    V = np.linalg.qr(rng.uniform(-1.0, 1.0, (n, d)))[0]
    return Table((V * spectrum) @ U.T)
