"""Start a run from known components, for example from an earlier run over most of the same rows.

A tracker begins with these components unchanged. In its opening, a batch run requests the product C Z, where C = X'X
for the new rows X in their frame. The block Z is made from the components and from random columns, as after a change of
clients (`Algorithm.restart`). Without the random columns, a block that is orthogonal to a new direction would stay
orthogonal, and would look converged. If the opening finds that the rows are the rows of the earlier run
(`earlier_run`), the run ends as soon as the residuals are small.

The start changes the number of messages, but the result only by rounding errors. Sparse components are an exception,
because they are a local optimum near the start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from flower_pca.base import checks, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import Outcome
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief, shown
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.model import EarlierRun, Model
from flower_pca.results.pca import PCAResult
from flower_pca.settings.bits import BITS, ROUNDING


class StartComponents(NamedTuple):
    """The components that a run starts from, as rows, and the scale and names of their columns."""

    components_: Array
    scale_: Array | None = None
    feature_names_in_: Any = None

    def __repr__(self) -> str:
        return brief(self)

    def arrange(self, order: Sequence[str]) -> StartComponents:
        """Return these components with columns in this order, without column names."""
        place = {str(name): j for j, name in enumerate(self.feature_names_in_)}
        missing = [name for name in order if name not in place]
        if missing:
            raise ConfigError(
                f"The result to start from has no column {missing[0]}. Start from a result with this column, or leave "
                f"{option('init')} out.",
                setting="init",
            )
        places = [place[name] for name in order]
        scale = None if self.scale_ is None else self.scale_[places]
        return StartComponents(self.components_[:, places], scale)


# The random columns of the start are drawn as for a restart with this number. Restarts of the run have lower numbers,
# so they draw other columns.
_FIRST_RESTART: Final = 1000

Start: TypeAlias = "Array | PCAResult | StartComponents | str | os.PathLike[str]"


def start_basis(init: Start, r: int, wanted: tuple[str, ...] | None) -> tuple[Array, tuple[str, ...] | None]:
    """Return the r orthonormal columns that a tracker begins with, in original units, and the column names of the run.

    The names are `wanted`, or the column names of the start if the run names no columns. The names make sure that the
    basis and the rows have the same columns.
    """
    given = components_of(init)
    if given.feature_names_in_ is not None:
        wanted = wanted or tuple(map(str, given.feature_names_in_))
        given = given.arrange(wanted)
    rows = given.components_
    if rows.shape[0] != r or rows.shape[1] < r:
        raise _shape_error(f"a run with {option('n_components', r)} needs {r} rows and at least {r} columns", rows)
    if given.scale_ is not None:
        rows = rows * given.scale_
    return linalg.orth(rows.T), wanted


def start_block(
    init: Start, algorithm: Algorithm[Any], *, n_components: int | float, seed: int, wanted: tuple[str, ...] | None
) -> Array:
    """Return the block Z for which the opening requests C Z, in the original units of the rows.

    Parameters
    ----------
    init : PCAResult, path or array-like
        A result, its file, or components as rows.
    algorithm : Algorithm
        The algorithm, which continues from the products in the opening.
    n_components : int or float
        The number of components of the run, as the user passed it.
    seed : int
        The seed of the run.
    wanted : tuple of str or None
        The names of the columns that the run was asked for, or None.
    """
    given = components_of(init)
    # If the user names no columns, the run sorts them by name.
    if given.feature_names_in_ is not None:
        given = given.arrange(sorted(map(str, given.feature_names_in_)) if wanted is None else wanted)
    rows, scale = given.components_, given.scale_
    d = rows.shape[1]
    width = min(algorithm.width(n_components), d)
    drawn = linalg.random_block(d, width, seed)
    filled = np.hstack([rows.T, drawn])[:, :width]
    model = Model(
        n_components=n_components,
        center=True,
        scale=None,
        seed=seed,
        d=d,
        basis=linalg.orth(filled),
        restarts=_FIRST_RESTART,
    )
    mixed = algorithm.restart(model)[:, :d]
    return mixed if scale is None else mixed / scale[:, None]


def earlier_run(
    init: Start,
    algorithm: Algorithm[Any],
    *,
    n_components: int | float,
    wanted: tuple[str, ...] | None,
    rounding: float = 0.0,
) -> EarlierRun | None:
    """Return the figures by which the rows of a converged earlier run are recognized, or None for any other start.

    `rounding` is the relative rounding error of products in this run.
    """
    found: Any = _load_start(init)
    if not isinstance(found, PCAResult) or not isinstance(n_components, int):
        return None
    settled = found.status.outcome in (Outcome.CONVERGED, Outcome.DONE) and found.residuals_ is not None
    if not settled or found.cross_ is not None or found.n_components_ < n_components:
        return None
    places: Any = slice(None)
    if found.feature_names_in_ is not None:
        names = list(map(str, found.feature_names_in_))
        places = [names.index(name) for name in (sorted(names) if wanted is None else wanted)]
    degrees = found.n_samples_ - 1
    return EarlierRun(
        n=found.n_samples_,
        mean=found.mean_[places] if found.centered else None,
        scale=None if found.scale_ is None else found.scale_[places],
        trace=found.total_variance_ * degrees,
        values=found.explained_variance_[:n_components] * degrees,
        angle=_error_as_angle(found, algorithm),
        rounding=max(rounding, ROUNDING[BITS.get(str(found.config.get("wire")), 64)]),
    )


def _error_as_angle(result: PCAResult, algorithm: Algorithm[Any]) -> float | None:
    """Return the error of a run as an angle, or None if it is not known.

    The error is the smaller of the estimate from the residuals and the algorithm's error, if the latter is an angle.
    """
    angles = [] if result.sine_estimate_ is None else [result.sine_estimate_]
    if algorithm.ends_by_angle and result.algorithm.partition("(")[0] == algorithm.name:
        # Under masks, the record of the sum has the error of the round.
        angles += [record.metrics["error"] for record in result.history if "error" in record.metrics][-1:]
    return min(angles, default=None)


def components_of(init: Start) -> StartComponents:
    """Return the components of a start, with the scale and names of their columns if they are known.

    Raise a ConfigError if the components are not a matrix of finite numbers.
    """
    found: Any = _load_start(init)
    rows = checks.as_numbers("The components to start from", getattr(found, "components_", found))
    if rows.ndim == 3:
        rows = rows[-1]
    if rows.ndim != 2 or 0 in rows.shape or not np.isfinite(rows).all():
        raise _shape_error("a start needs a matrix of finite numbers", rows)
    return StartComponents(rows, getattr(found, "scale_", None), getattr(found, "feature_names_in_", None))


def read_start(init: Start) -> PCAResult | StartComponents:
    """Return a start as a result if it is a result or a file, and otherwise as components."""
    found: Any = _load_start(init)
    components = components_of(found)
    return found if isinstance(found, PCAResult) else components


def refuse_setting(algorithm: Algorithm[Any], init: Start) -> None:
    """Raise a ConfigError if the user passed a value of the algorithm's setting `init` as the `init` of the run."""
    if not isinstance(init, str):
        return
    try:
        replace(algorithm, init=init)  # type: ignore[call-arg]
    except (ConfigError, TypeError):  # The algorithm has no parameter `init`, or does not accept this value for it.
        return
    raise ConfigError(
        f"init takes an earlier result, its file, or components to begin with, but {shown(init)} is a setting of "
        f"{algorithm.name}. Write \"{algorithm.name}(init='{init}')\" for the algorithm instead.",
        setting="init",
        value=init,
    )


def _load_start(init: Start) -> Any:
    if not isinstance(init, str | os.PathLike):
        return init
    try:
        return PCAResult.load(init)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{option('init')} is {shown(init)}, but there is no file with this name. Give the result of an earlier "
            "run, its file, or an array with one component per row.",
            setting="init",
            value=init,
        ) from error


def _shape_error(need: str, rows: Array) -> ConfigError:
    return ConfigError(
        f"The components to start from have shape {rows.shape}, but {need}. Give one component per row.", setting="init"
    )
