"""The settings of masks, which hide the answers of individual clients: see `masking`."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from flower_pca.base import checks, spec
from flower_pca.base.errors import ConfigError

_ALL_NEIGHBORS: Final = 100  # maximum number of clients for which every two clients share a mask
# With more clients, up to one in _COLLUDING clients may collude with the server or drop out. The probability that this
# exposes a client, or makes the sum impossible, is at most 2^-_SECURITY.
_COLLUDING: Final = 5
_SECURITY: Final = 20


@dataclass(frozen=True, kw_only=True)
class MaskedSums:
    """The settings of masks, which hide the answers of individual clients, so that the server sees only sums.

    `mask=True` means the default settings.

    Parameters
    ----------
    threshold : float, default=0.5
        More than this share of each neighborhood (a client and its neighbors) must answer. Otherwise the sum is not
        computed. The threshold is at least one half, because with a lower threshold, a server that lies about drop-outs
        could see an answer.
    bound : float or None, default=None
        The largest absolute entry that any client may send after the opening. By default, the bound is computed from
        the sums of the opening. A client with a larger entry sends an error instead of its answer.
    neighbors : int or None, default=None
        The number of other clients with which each client shares masks. It must be even. By default, up to 100 clients
        share masks with all other clients. With more clients, the default is the smallest secure number, for example
        48 for 200 clients and 72 for 1000 clients. A number is secure if, when a fifth of all clients collude, the
        probability that a majority of any client's neighbors colludes is at most 2^-20.
    self_masks : bool, default=True
        Whether each client adds one further mask, which no other client knows, in addition to the shared masks.
        Without self-masks, a sum takes one message instead of two if no client drops out. But a server that lies about
        drop-outs could unmask an upload, and even a server that follows the protocol could unmask a late upload. Nodes
        must allow runs without self-masks by their rule `single_masks`.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import MaskedSums, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("krylov", sites, n_components=2, mask=MaskedSums(threshold=0.6))
    >>> print(result.explained_variance_ratio_.round(2))
    [0.56 0.38]
    """

    threshold: float = 0.5
    bound: float | None = None
    neighbors: int | None = None
    self_masks: bool = True

    def __post_init__(self) -> None:
        checks.use_python_numbers(self)
        object.__setattr__(self, "threshold", checks.parse_share(self.threshold))
        checks.number("threshold of the masks", self.threshold, least=0.5, most=0.99, remedy="Use 0.5.")
        if self.bound is not None:
            checks.number("bound of the masks", self.bound, least=1e-300, remedy="Leave it out.")
        if self.neighbors is not None:
            checks.integer("neighbors of the masks", self.neighbors, least=2, remedy="Leave it out.")
            if self.neighbors % 2:
                raise ConfigError(
                    f"neighbors of the masks must be even, not {self.neighbors}. Use {self.neighbors + 1}."
                )
        checks.choice("self_masks of the masks", self.self_masks, (True, False))

    @classmethod
    def of(cls, mask: bool | MaskedSums | str | None) -> MaskedSums | None:
        """Return the settings for a value of `mask`, such as "masks(neighbors=20)", or None for no masks."""
        # Configuration files may contain True and False as words.
        if isinstance(mask, str) and mask.lower() in ("true", "false"):
            mask = mask.lower() == "true"
        if isinstance(mask, bool | np.bool_):
            return cls() if mask else None
        rule = 'True, False, a MaskedSums, or a string such as "masks(neighbors=20)"'
        return spec.instance(cls, mask, "masks", rule, what="mask")

    def neighbor_count(self, clients: int) -> int:
        """Return the number of neighbors of each client in a run with this number of clients."""
        if self.neighbors is not None:
            return min(self.neighbors, clients - 1)
        if clients <= _ALL_NEIGHBORS:
            return clients - 1
        return _fewest(clients)

    def quorum(self, group: int) -> int:
        """Return the number of clients that must answer in a neighborhood of `group` clients."""
        return min(group, math.floor(self.threshold * group) + 1)


@functools.cache
def _fewest(clients: int) -> int:
    """Return the smallest even number of neighbors in a random ring that gives the required security (Bell 2020).

    The probability that more than half of k random neighbors collude is the tail of a hypergeometric
    distribution. The probability that this happens to any client is at most the sum of the probabilities over
    all clients.
    """
    others, colluding = clients - 1, -(-clients // _COLLUDING)
    for k in range(2, others, 2):
        ways = {c: math.comb(colluding, c) for c in range(k // 2 + 1, min(k, colluding) + 1)}
        draws = sum(many * math.comb(others - colluding, k - c) for c, many in ways.items())
        if clients * draws << _SECURITY <= math.comb(others, k):
            return k
    return others
