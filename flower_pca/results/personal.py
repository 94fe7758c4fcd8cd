"""`PersonalResult`: shared components of all clients, and each client's local components.

`TripleResult` adds the outlying entries that were removed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np

from flower_pca.algorithms.personal import deflation
from flower_pca.algorithms.personal.closing import OWN
from flower_pca.algorithms.personal.triple_pca import ClientRows, Fit
from flower_pca.base import checks, labels, linalg
from flower_pca.base.errors import ConfigError
from flower_pca.base.history import History
from flower_pca.base.linalg import Array
from flower_pca.base.shown import brief, shown
from flower_pca.core.model import Model
from flower_pca.results.facts import Fact
from flower_pca.results.pca import PCAResult
from flower_pca.rows.local import LocalData

# Below this theta, shared components cannot be reliably separated from local components.
SEPARABLE: Final = 0.05
UNMEASURED: Final = "not measured, because fewer than two nodes agreed (share_local); run with mask=True to measure it"


class Parts(NamedTuple):
    """Rows split into parts, in the original units: row = mean_ + shared + own + rest."""

    shared: Array
    own: Array
    rest: Array

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PersonalResult(PCAResult):
    """Shared components, and each client's local components.

    The shared components are in `components_`. The local components of a client are in `local[client]["components"]`.

    Methods take a client by its position in `local`, by its name, or as an array with its local components as rows,
    which its node has written. Local components are orthonormal rows, orthogonal to the shared components, largest
    variance first, each with its largest entry positive. `local[client]["variances"]` are the mean squares of the
    client's rows along its local components.

    Attributes
    ----------
    error_ : float
        Mean over clients of the mean squared distance between a row and the sum of its shared and own parts.
    theta_estimate_ : float
        The federated estimate of theta, computed from sums over clients (see `theta_`). Without masks, only nodes with
        the rule `share_local` take part. NaN if at most one of several nodes takes part.
    local_components : int
        The number of local components of a client, or the largest number if clients differ.
    collected_ : ndarray of shape (N, r2, d)
        Own components of the N clients that agreed to send them, in the order of the clients' keys. A client with fewer
        than r2 components has rows of zeros. N = 0 without `collect`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 0.1, 4]]  # one shared direction, and one for each site
    >>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
    >>> result = simulate("exact_per_pca(local_components=1)", sites, n_components=1)
    >>> result.components_.shape, result.local[0]["components"].shape
    ((1, 4), (1, 4))
    """

    complete: ClassVar[bool] = False
    pooled: ClassVar[bool] = False
    closing: ClassVar[str] = "personal"  # name of the last stage of a personalized run

    error_: float
    theta_estimate_: float
    local_components: int
    collected_: Array

    @classmethod
    def of(cls, model: Model, *, algorithm: str, history: History, config: Mapping[str, Any]) -> Self:
        """Return the result of a finished model, and warn if shared and local components cannot be separated."""
        result = super().of(model, algorithm=algorithm, history=history, config=config)
        if result.theta_estimate_ < SEPARABLE and result.local_components:
            numbers = f"{result.n_components_} shared and {result.local_components} local components"
            warnings.warn(
                f"theta is {result.theta_estimate_:.2g} with {numbers}, and below {SEPARABLE:g} they cannot be "
                "separated. Use fewer components, first fewer local components. "
                "`flower_pca.comparison.ranks.rank_table` compares the numbers.",
                UserWarning,
                stacklevel=2,
            )
        return result

    @classmethod
    def _fields(cls, model: Model) -> dict[str, Any]:
        left = model.left
        return {
            **super()._fields(model),
            "error_": float(left["error"]),
            "theta_estimate_": float(left["theta"]),
            "local_components": int(np.max(left["own"])),
            "collected_": left["collected"],
        }

    @property
    def theta_(self) -> float:
        """The identifiability 1 - lambda_max(mean_i P_i), where P_i projects onto client i's local components.

        Near 0, the split into shared and local components is arbitrary. The value is exact if the local components of
        all clients are in `local`. Otherwise it is the run's estimate, an upper bound that is close to theta after
        about ten rounds, or NaN if the run did not measure theta.
        """
        closing = self.history.of(self.closing)
        if not self.local or not closing or len(self.local) < closing[-1].answered:
            return self.theta_estimate_
        rows = np.vstack([own[OWN] for own in self.local.values()])
        return 1.0 - linalg.norm2(rows.T) ** 2 / len(self.local)

    def _client_key(self, site: str) -> int:
        """Return the key of the client with this name, or raise a ConfigError if there is no such client."""
        names = {name: key for key, name in self.site_names.items() if key in self.local}
        if site not in names:
            raise ConfigError(
                f"The result has no client {shown(site)}. Its clients are {', '.join(names) or 'without names'}. Give "
                "a name or a position."
            )
        return names[site]

    def local_components_of(self, client: int | str | Array) -> Array:
        """Return the local components of a client as rows, (r, d).

        The client is given by its position, by its name, or as an array with its local components, which is returned
        after a check. Raise a ConfigError if the components are not known, or if the array has the wrong shape.
        """
        if isinstance(client, str):
            client = self._client_key(client)
        if not isinstance(client, int | np.integer):
            rows = checks.as_numbers("The components of the client", client)
            if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
                got = f"shape {rows.shape}"
                raise ConfigError(
                    f"Local components must be rows of {labels.count(self.n_features_in_, 'feature')}, but have {got}. "
                    "Transpose them."
                )
            return rows
        if client not in self.local:
            known = ", ".join(map(str, self.local)) or "no client"
            raise ConfigError(
                f"The result has the local components of {known}, but not of client {client}. Pass the local "
                "components from the file that the client's node has written."
            )
        return self.local[int(client)][OWN]

    @property
    def local_count_in_words(self) -> str:
        """The number of local components of a client, or its range if clients differ."""
        counts = [len(own[OWN]) for own in self.local.values() if OWN in own]
        found = counts or [self.local_components]
        least, most = min(found), max(found)
        if least == most:
            return f"{most}"
        return f"{least} to {most}"

    def _facts(self) -> list[Fact]:
        """Return figures, including theta, which shows whether shared and local components can be separated."""
        own, error, theta = "own components of a client", "error with own components", float(self.theta_)
        measured = Fact("theta", "theta", theta, f"{theta:.3g}")
        if np.isnan(theta):
            measured = Fact("theta", "theta", None, "not measured")
        return [
            *super()._facts(),
            Fact("local_components_of_a_client", own, self.local_components, self.local_count_in_words),
            measured,
            Fact("error_with_local_components", error, self.error_, f"{self.error_:.4g}"),
        ]

    def fit_local(self, X: Any, n_components: int | None = None) -> Array:
        """Return the local components of a client that took no part in the run, estimated from its rows, (r, d).

        The shared components do not change. The local components are the leading directions of the residual of the rows
        after projection onto the shared components, in the frame of the run. Pass them as `client` to the other
        methods. The rows stay on this machine.

        Parameters
        ----------
        X : array-like
            Rows of the new client, (n, d).
        n_components : int or None, default=None
            The number of local components. By default, `local_components`, as in the run.

        Returns
        -------
        ndarray
            Orthonormal rows, largest variance first. There are fewer rows than requested if the rank of X is too small.
        """
        r = self.local_components if n_components is None else n_components
        checks.integer(
            "n_components of local components",
            r,
            least=0,
            most=self.n_features_in_ - self.n_components_,
            remedy="Ask for fewer.",
        )
        data = self._rows_to_fit(self._rows_in_frame(X), r)
        V = deflation.local_basis(data, np.ascontiguousarray(self.components_.T), r)
        _, V, _, _ = linalg.rayleigh_ritz(V, deflation.covariance_product(data, V))
        return np.ascontiguousarray(linalg.fix_signs(V).T)

    def _rows_to_fit(self, data: LocalData, local_components: int) -> LocalData:
        """Return the rows from which local components are estimated. Subclasses remove outlying entries from them."""
        return data

    def table(self) -> str:
        """Return the variances of the shared components as a plain text table, followed by theta."""
        if not self.local_components:
            return super().table()
        theta = UNMEASURED if np.isnan(self.theta_) else f"{self.theta_:.2g}"
        return f"{super().table()}\ntheta {theta}"

    def transform(self, X: Any, *, client: int | str | Array | None = None) -> Array:
        """Return the coordinates of rows, (n, d), along the shared components and then a client's local components."""
        return self._rows_in_frame(X).scores(self._basis(client))

    def inverse_transform(self, scores: Array, *, client: int | str | Array | None = None) -> Array:
        """Return the rows, (n, d), that have these scores and are in the components' span, in the original units."""
        X = np.asarray(scores) @ self._basis(client).T
        return np.asarray(self._in_original_units(X) + self.mean_)

    def split(self, X: Any, *, client: int | str | Array) -> Parts:
        """Split the rows of a client into a shared part, its own part, and the rest."""
        data = self._rows_in_frame(X)
        bases = (self.components_, self.local_components_of(client))
        shared, own = (data.scores(rows.T) @ rows for rows in bases)
        dense = [np.asarray(block @ np.eye(data.d)) for block in data.rows()]
        parts = (shared, own, np.concatenate(dense) - shared - own)
        return Parts(*map(self._in_original_units, parts))

    def reconstruction_error(self, X: Any, *, client: int | str | Array | None = None) -> float:
        """Return the mean squared distance, in the frame, between rows and their reconstruction.

        A row is reconstructed from its shared part, or from its shared and own parts if `client` is given.
        """
        data = self._rows_in_frame(X)
        return data.squared_error(self._basis(client)) / data.n

    def _basis(self, client: int | str | Array | None) -> Array:
        if client is None:
            return self.components_.T
        return np.vstack([self.components_, self.local_components_of(client)]).T


_STEPS: Final = 30  # iterations that estimate a new client's local components


def _clients_with(name: str, left: Mapping[str, Array], what: str) -> list[str]:
    """Return a list with one sentence about the number of clients that have a property, or [] if no client has it.

    `left[name]` holds this number and the number of all clients, and `what` describes the property.
    """
    affected, clients = map(int, left[name])
    if not affected:
        return []
    verb = "has" if affected == 1 else "have"
    return [f"{affected} of {labels.count(clients, 'client')} {verb} {what}"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TripleResult(PersonalResult):
    """Shared components, each client's local components, and the outlying entries that were removed.

    Rows are the sum of a shared part, an own part, a sparse part and noise. The attributes of `PersonalResult` are
    about rows without their sparse part.

    `local` also has two matrices for each client: L, the mean plus the shared and own parts of its rows, and S, the
    sparse part of its rows. In each entry, L + S differs from the client's rows, in their original units, by at most
    the threshold.

    Attributes
    ----------
    threshold_ : float
        The residual above which entries were removed, in multiples of the standard deviation of the column's noise.
    noise_ : ndarray of shape (d,)
        The standard deviation of each column's noise in the frame, as the root mean square over the clients.
    removed_share_ : ndarray of shape (d,)
        The share of each column's entries that were removed, over all clients.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> scales = [[6, 4, 0.1, 0.1], [6, 0.1, 4, 0.1], [6, 0.1, 0.1, 4]]  # one shared direction, and one for each site
    >>> sites = [rng.standard_normal((60, 4)) * scale for scale in scales]
    >>> sites[0][3, 2] = 100.0  # a typing error
    >>> result = simulate("triple_pca(local_components=1)", sites, n_components=1)
    >>> print(np.argwhere(result.local[0]["S"] > 50))  # its row and column
    [[3 2]]
    """

    closing: ClassVar[str] = "triple"
    variance_of: ClassVar[str] = "the variance without the sparse part"
    projects: ClassVar[bool] = False

    threshold_: float
    noise_: Array
    removed_share_: Array

    @classmethod
    def _fields(cls, model: Model) -> dict[str, Any]:
        left = model.left
        found = {"threshold_": float(left["cut"]), "noise_": left["noise"], "removed_share_": left["taken"]}
        common = super()._fields(model)
        few = "too few rows to find outlying entries: not used for shared components, and without local components."
        apart = (
            "different components: the shared components explain less than half of the variance that as many local "
            "components would explain."
        )
        hints = [*common["hints"], *_clients_with("few", left, few), *_clients_with("apart", left, apart)]
        return {**common, **found, "hints": tuple(hints)}

    def _facts(self) -> list[Fact]:
        """Return the figures of a personalized run, and the share of entries that were removed."""
        taken = float(self.removed_share_.mean())
        return [*super()._facts(), Fact("share_of_entries_taken_out", "entries taken out", taken, f"{taken:.2%}")]

    def transform(self, X: Any, *, client: int | str | Array | None = None) -> Array:
        """Return coordinates along shared and local components, with outlying entries treated as missing values."""
        return self._fit_of_rows(X, client)[1].T

    def sparse_part(self, X: Any, *, client: int | str | Array | None = None) -> Array:
        """Return the residuals of the outlying entries of X in the original units, (n, d), with 0 for other entries."""
        rows, fit = self._fit_of_rows(X, client)
        return self._in_original_units(np.where(fit.far, rows.X - fit.L, 0.0))

    def split(self, X: Any, *, client: int | str | Array) -> Parts:
        """Split the rows of a client into a shared part, its own part, and the rest with the sparse part."""
        rows, fit = self._fit_of_rows(X, client)
        k = self.n_components_
        shared = fit.T[:, :k] @ fit.W[:, :k].T
        parts = (shared, fit.L - shared, rows.X - fit.L)
        return Parts(*map(self._in_original_units, parts))

    def _rows_to_fit(self, data: LocalData, local_components: int) -> LocalData:
        rows, U = ClientRows.of_client(data), np.ascontiguousarray(self.components_.T)
        fit = rows.first_fit(self.threshold_)
        for _ in range(_STEPS):
            fit = rows.next_fit(fit, U, local_components, self.threshold_)
        return rows.without_outliers(fit)

    def _fit_of_rows(self, X: Any, client: int | str | Array | None) -> tuple[ClientRows, Fit]:
        rows = ClientRows.of_client(self._rows_in_frame(X))
        basis = np.ascontiguousarray(self._basis(client))
        return rows, rows.project(basis, self.noise_, self.threshold_)
