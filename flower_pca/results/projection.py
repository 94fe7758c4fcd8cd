"""`Projection` and `Scaling`: the parts of a result that a node needs to project or standardize rows.

A `Projection` has components, mean, scale, fill and column names, so it gives the same scores as the result. A
`Scaling` has the means and standard deviations of columns, for nodes that need standardized rows but no PCA. Both can
be packed into bytes, and `to_record` packs them into a record that Flower sends (see `flower_pca.wire`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np

from flower_pca.base import files, labels
from flower_pca.base.errors import ConfigError, DataError, safe_for_log
from flower_pca.base.history import History, Status
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief
from flower_pca.core.model import Model
from flower_pca.results.facts import column_names
from flower_pca.results.left_out import LeftOut
from flower_pca.results.matching import rows_in_frame
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData

_REMEDY: Final = "Ask the sender to send result.to_record() again."
_POSITIVE: Final = ("scale_", "shrinkage_")  # arrays that must be positive, because rows or scores are divided by them


def shrinkage_factors(variances: Array, left_out: float, *, rows: int, columns: int) -> Array:
    """Return the factors by which scores of new rows are smaller than scores of the fitted rows, (k,).

    This is the estimate of Dey and Lee (2019), under the assumption that variances are equal along all directions
    outside the components. `left_out` is the sum of these variances. `rows` is the number of rows, minus 1 if their
    mean was subtracted.
    """
    directions = min(rows, columns) - len(variances)
    if directions <= 0 or left_out <= 0.0:
        return np.ones(len(variances))
    above = variances - left_out / directions
    usable = np.where(above > 0.0, above, np.inf)
    return np.asarray(1.0 / (1.0 + left_out / (rows * usable)))


def require_shrinkage(factors: Array | None) -> Array:
    """Return these shrinkage factors, or raise an error if they are not known.

    Raises
    ------
    ConfigError
        If the factors are None because they are not known.
    """
    if factors is None:
        raise ConfigError(
            "How much the scores of new rows shrink is known only for components that are eigenvectors of the "
            "covariance of all rows, without noise. Use transform instead of project."
        )
    return factors


class Packet:
    """A set of arrays with d columns, and the names of the columns, that can be packed into bytes or a record.

    Attributes
    ----------
    kind : str
        The name of this kind of packet, in bytes and in errors.
    needed : tuple of str
        The names of the arrays that every packet of this kind has.
    optional : tuple of str
        The names of the arrays that a packet may have.
    counts : tuple of str
        The names of the attributes that are counts, such as the number of rows.
    """

    kind: ClassVar[str]
    needed: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]]
    counts: ClassVar[tuple[str, ...]] = ()

    mean_: Array | None
    scale_: Array | None
    fill_: Array | None
    feature_names_in_: Array | None
    feature_digest: str

    @property
    def n_features_in_(self) -> int:
        """d, the number of features."""
        return int(getattr(self, self.needed[0]).shape[-1])

    def in_frame(self, X: Any) -> LocalData:
        """Return the rows of X minus the mean, divided by the scale, with columns in the order of this packet."""
        names = labels.tuple_of(self.feature_names_in_)
        frame = Frame(self.mean_, self.scale_, self.fill_, names=names)
        return rows_in_frame(X, frame, self.n_features_in_, digest=self.feature_digest)

    def to_bytes(self) -> bytes:
        """Pack everything into bytes for `from_bytes`, in numpy's format without pickles."""
        counts = {name: getattr(self, name) for name in self.counts}
        names = {"feature_names": labels.tuple_of(self.feature_names_in_), "feature_digest": self.feature_digest}
        return files.to_bytes(self.kind, {**counts, **names}, self._arrays())

    def _arrays(self) -> dict[str, Array]:
        """Return the arrays of this packet by name, without arrays that are None."""
        given = {name: getattr(self, name) for name in (*self.needed, *self.optional)}
        return {name: a for name, a in given.items() if a is not None}

    @classmethod
    def from_bytes(cls, packed: bytes) -> Self:
        """Unpack the bytes of `to_bytes`.

        Raises
        ------
        DataError
            If the bytes are not a packet of this kind.
        """
        header, arrays = files.from_bytes(cls.kind, packed)
        # The bytes come from a peer, so counts and names may be missing. Such bytes are refused like any invalid bytes.
        names: Any = header.get("feature_names", [None])
        digest: Any = header.get("feature_digest")
        if not set(cls.needed) <= set(arrays) <= {*cls.needed, *cls.optional}:
            got = safe_for_log(", ".join(sorted(arrays)) or "none")
            raise DataError(f"The arrays of a {cls.kind} do not match its fields: {got}. {_REMEDY}")
        texts = [digest]
        if isinstance(names, list):
            texts += names
        elif names is not None:
            texts.append(names)
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"Not all names of a {cls.kind} are text: {safe_for_log(repr(texts))}. {_REMEDY}")
        counts: dict[str, int] = {}
        for name in cls.counts:
            count = header.get(name)
            # Booleans are excluded, because True is an int in Python.
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise DataError(
                    f"{name} of a {cls.kind} is {safe_for_log(repr(count))}, which is not a number of rows. {_REMEDY}"
                )
            counts[name] = count
        heading = {"feature_names_in_": labels.array_of(names), "feature_digest": digest}
        return cls(**arrays, **counts, **heading)

    def to_record(self) -> Any:
        """Return a Flower `ConfigRecord` that holds the packet, for a message or as part of a larger config."""
        from flower_pca import wire

        return wire.write_packed(self.kind, self.to_bytes())

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Unpack a `ConfigRecord` of `to_record`, or the config of a NumPyClient that has the same keys.

        Raises
        ------
        ProtocolError
            If the record contains no packet of this kind.
        DataError
            If the packet is damaged.
        """
        from flower_pca import wire

        return cls.from_bytes(wire.read_packed(cls.kind, record))


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection(Packet):
    """A map from rows to their scores along the components.

    Attributes
    ----------
    components_ : ndarray of shape (k, d)
        Components as rows, orthonormal.
    mean_ : ndarray of shape (d,) or None
        The mean that is subtracted from a row, or None.
    scale_ : ndarray of shape (d,) or None
        The divisor of each column, or None.
    fill_ : ndarray of shape (d,) or None
        The value that replaces a missing value in each column. None if no missing values are allowed.
    weights_ : ndarray of shape (k, d) or None
        The matrix that turns rows into scores if components are not orthonormal, else None.
    shrinkage_ : ndarray of shape (k,) or None
        The factor by which scores of new rows are smaller than scores of the run's rows. None if it is not known. See
        `PCAResult.shrinkage_`.
    feature_names_in_ : ndarray of shape (d,) or None
        Names of the columns. None if columns are matched by position.
    feature_digest : str
        SHA-256 of the sorted names, if clients do not send the names. "" if columns have no names.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Projection, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("krylov", sites, n_components=2)
    >>> projection = Projection(components_=result.components_, mean_=result.mean_)
    >>> projection.transform(sites[0]).shape
    (60, 2)
    """

    kind: ClassVar[str] = "projection"
    needed: ClassVar[tuple[str, ...]] = ("components_",)
    optional: ClassVar[tuple[str, ...]] = ("mean_", "scale_", "fill_", "weights_", "shrinkage_")

    components_: Array
    mean_: Array | None = None
    scale_: Array | None = None
    fill_: Array | None = None
    weights_: Array | None = None
    shrinkage_: Array | None = None
    feature_names_in_: Array | None = None
    feature_digest: str = ""

    __repr__ = brief

    def __post_init__(self) -> None:
        Z, arrays, remedy = self.components_, self._arrays(), "Use Projection.from_record(result.to_record())."
        shapes = {name: a.shape for name, a in arrays.items()}
        if self.feature_names_in_ is not None:
            shapes["feature_names_in_"] = (len(self.feature_names_in_),)
        sides = {"components_": Z.shape, "weights_": Z.shape, "shrinkage_": Z.shape[:1]}
        expected = {name: sides.get(name, Z.shape[1:]) for name in shapes}
        if Z.ndim != 2 or Z.size == 0 or shapes != expected:
            raise DataError(
                f"The shapes {shapes} do not fit: components_ and weights_ must be (k, d), shrinkage_ (k,), all others "
                f"(d,). {remedy}"
            )
        for name, a in arrays.items():
            if a.dtype.kind != "f" or not np.isfinite(a).all() or (name in _POSITIVE and not (a > 0.0).all()):
                above = " above 0" if name in _POSITIVE else ""
                raise DataError(f"{name} of a projection has entries that are not finite numbers{above}. {remedy}")

    @property
    def n_components_(self) -> int:
        """k, the number of components."""
        return len(self.components_)

    def transform(self, X: Any) -> Array:
        """Return the coordinates of rows along the components, (n, k). Columns match as in `PCAResult.transform`."""
        basis = self.components_ if self.weights_ is None else self.weights_
        return self.in_frame(X).scores(basis.T)

    def project(self, X: Any) -> Array:
        """Return scores of new rows that are comparable with the run's rows, (n, k). See `PCAResult.project`."""
        return self.transform(X) / require_shrinkage(self.shrinkage_)

    def inverse_transform(self, scores: Array) -> Array:
        """Return the rows, (n, d), that have these scores and are in the components' span, in the original units."""
        X = np.asarray(scores) @ self.components_
        if self.scale_ is not None:
            X = X * self.scale_
        return np.asarray(X if self.mean_ is None else X + self.mean_)


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling(Packet):
    """The means and standard deviations of all rows together, with which a node standardizes its local rows.

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
        Mean of each column.
    scale_ : ndarray of shape (d,)
        Standard deviation of each column over its observed values, with divisor n. 1 for a constant column.
    n_samples_ : int
        Rows of all clients together.
    fill_ : ndarray of shape (d,) or None
        The value that replaces a missing value in each column. None if no missing values were allowed.
    feature_names_in_ : ndarray of shape (d,) or None
        Names of the columns. None if columns are matched by position.
    feature_digest : str
        SHA-256 of the sorted names, if clients do not send the names. "" if columns have no names.
    status, history
        Why the run ended, and what happened in each message. A record contains neither.
    config : mapping
        The configuration of the run, as plain values.
    site_names : mapping
        Names of the contributing clients by key. Clients without a name are not listed.
    left_out : mapping
        Clients whose rows are not in the result, by key, each with its `name` and `why`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Scaling
    >>> scaling = Scaling(mean_=np.array([50.0, 25.0]), scale_=np.array([10.0, 5.0]), n_samples_=200)
    >>> print(scaling.transform([[60.0, 20.0]]))
    [[ 1. -1.]]
    """

    kind: ClassVar[str] = "scaling"
    needed: ClassVar[tuple[str, ...]] = ("mean_", "scale_")
    optional: ClassVar[tuple[str, ...]] = ("fill_",)
    counts: ClassVar[tuple[str, ...]] = ("n_samples_",)

    mean_: Array
    scale_: Array
    n_samples_: int
    fill_: Array | None = None
    feature_names_in_: Array | None = None
    feature_digest: str = ""
    status: Status | None = None
    history: History = field(default_factory=History)
    config: Mapping[str, Any] = field(default_factory=dict)
    site_names: Mapping[int, str] = field(default_factory=dict)
    left_out: Mapping[int, LeftOut] = field(default_factory=dict)

    __repr__ = brief

    def __post_init__(self) -> None:
        arrays = self._arrays().values()
        shapes = {a.shape for a in arrays}
        if self.feature_names_in_ is not None:
            shapes.add((len(self.feature_names_in_),))
        right = len(shapes) == 1 and self.mean_.ndim == 1 and self.mean_.size > 0
        numbers = all(a.dtype.kind == "f" and np.isfinite(a).all() for a in arrays)
        if not (right and numbers and (self.scale_ > 0.0).all()):
            raise DataError(
                "The arrays of a scaling must have one finite number for each column, and the standard deviations must "
                "be above 0. Take the scaling from a run of Standardize."
            )

    @classmethod
    def of(cls, model: Model, *, algorithm: str, history: History, config: Mapping[str, Any]) -> Self:
        """Return the scaling of a finished run."""
        frame = model.frame
        assert frame.mean is not None
        assert frame.scale is not None
        return cls(
            mean_=frame.mean,
            scale_=frame.scale,
            n_samples_=model.n,
            fill_=frame.fill,
            feature_names_in_=labels.array_of(model.feature_names),
            feature_digest=model.feature_digest,
            status=model.status,
            history=history,
            config={"algorithm": algorithm, **config},
        )

    def transform(self, X: Any) -> Array:
        """Return the rows of X minus the means, divided by the deviations, (n, d).

        Columns are matched by name as in `PCAResult.transform`, and returned in the order of `feature_names_in_`.
        """
        return np.concatenate(list(self.in_frame(X).dense()))

    def inverse_transform(self, X: Any) -> Array:
        """Convert rows that `transform` has standardized back to their original units, as an array of shape (n, d)."""
        return np.asarray(np.asarray(X) * self.scale_ + self.mean_)

    def table(self) -> str:
        """Return a plain text table with the mean and the standard deviation of each column."""
        columns = zip(column_names(self), self.mean_, self.scale_, strict=True)
        lines = [[n, f"{m:.6g}", f"{s:.6g}"] for n, m, s in columns]
        return labels.text_table(["column", "mean", "deviation"], lines)
