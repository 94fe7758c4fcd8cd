"""Make the tables of the sites in a simulation, with the same checks as in a deployment.

The module also computes what the sites of a deployment agree on in messages, such as the levels of text columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flower_pca import hints
from flower_pca.base import checks, labels
from flower_pca.base.errors import DataError
from flower_pca.base.options import Sentence
from flower_pca.base.shown import shown
from flower_pca.core.config import PCAConfig
from flower_pca.hints import faults
from flower_pca.hints.repeats import without_repeated_hints
from flower_pca.hints.sizes import dominating_column, hints_of_largest
from flower_pca.names.columns import Heading, position_of_majority
from flower_pca.names.levels import Coding, source_of
from flower_pca.names.table import Table, with_variants_of_all_sites
from flower_pca.results.pca import PCAResult
from flower_pca.rows.frame import Frame, Moments, merge_moments
from flower_pca.rows.local import LocalData
from flower_pca.stages.site_share import hints_of_sites


def sites_of(shards: Any) -> list[Table]:
    """Return the shards as tables. The keys of a mapping become the names of the sites."""
    if isinstance(shards, Mapping) and shards:
        return with_variants_of_all_sites([Table.of(X, who=str(site), site=str(site)) for site, X in shards.items()])
    several = isinstance(shards, list | tuple) or (isinstance(shards, np.ndarray) and shards.ndim == 3)
    if not several or len(shards) == 0:
        got = "is empty" if several else f"is {shown(shards)}"
        raise DataError(
            f"shards {got}. Give a list with one array for each client, such as [X] for one client.", setting="shards"
        )
    return with_variants_of_all_sites([Table.of(X, who=f"client {i}") for i, X in enumerate(shards)])


def common_column_order(sites: Sequence[Table]) -> tuple[str, ...] | None:
    """Return the names of the columns in the common order of all sites.

    Return None if the orders differ, if the order is alphabetical, or if there are text columns or no names.
    """
    orders = {(site.names, bool(site.words)) for site in sites}
    names, words = next(iter(orders))
    if len(orders) > 1 or words or names is None or list(names) == sorted(names):
        return None
    return names


def clients_as_run(shards: Any, *, missing: bool) -> list[LocalData]:
    """Return the clients with rows, with their columns in the same order as in a run that names no columns."""
    sites = sites_of(shards)
    return [
        client for client in clients_of_tables(sites, missing=missing, columns=common_column_order(sites)) if client.n
    ]


def clients_of(shards: Any, *, missing: bool) -> list[LocalData]:
    """Return the shards as clients with all of their columns."""
    return clients_of_tables(sites_of(shards), missing=missing)


def clients_of_tables(
    sites: Sequence[Table], *, missing: bool, columns: tuple[str, ...] | None = None, hinted: bool = False
) -> list[LocalData]:
    """Return the tables as clients, and raise DataError if their columns differ.

    Some of the tables may have no rows, but not all of them. If `hinted` is true, what hints need of all rows is
    found in the first pass over them where possible.
    """
    found = enumerate(sites)
    watches = faults.watches_of(sites, columns) if hinted else [None] * len(sites)
    empty = any(site.shape[:1] != (0,) for site in sites)
    if columns is None:
        clients = [
            LocalData(X.whole(f"client {i}"), who=f"client {i}", missing=missing, empty=empty, watch=watches[i])
            for i, X in found
        ]
    else:  # Missing values are checked below, because they are allowed in columns that are left out.
        clients = [
            LocalData(X, who=f"client {i}", missing=True, empty=empty, watch=watches[i]).arrange(columns)
            for i, X in found
        ]
        if not missing:
            for client in clients:
                client.require_whole()
    usual = clients[position_of_majority([client.heading for client in clients])]
    for client in clients:
        if not client.heading.has_same_columns(usual.heading):
            raise client.heading.mismatch(client.who, usual.heading, usual.who).error(DataError)
    return clients


def clients_with_results(hide_local: Collection[int], n_clients: int) -> list[int]:
    """Return the positions of the clients whose local results are in the result: all except those in `hide_local`."""
    for client in hide_local:
        checks.integer("Every client in hide_local", client, most=n_clients - 1, remedy="Give positions in shards.")
    return sorted({*range(n_clients)} - {*hide_local})


def with_hints(result: PCAResult, clients: Sequence[LocalData], frame: Callable[[], Frame]) -> PCAResult:
    """Return the result with hints about the rows, unless noise protects the rows.

    The hints are about columns of identifiers, first lines that may be names, and mistakes in files. The function
    `frame` returns the frame of the result for the rows of these clients.
    """
    if result.privacy is not None:  # Hints would reveal more about the rows than the result, which has noise.
        return result
    names = labels.tuple_of(result.feature_names_in_)
    most = faults.most_unasked(names)
    of_sites: list[str] = []
    of_columns: tuple[str, ...] = ()
    alone: int | None = None
    if result.hints:
        scale = result.config.get("scale")
        of_sites += map(Sentence, hints_of_sites(result.site_share_, result.sites_, result.n_samples_, scale))
        of_columns = tuple(hint for hint in result.hints if hint not in of_sites)
    if of_columns:
        its = frame()
        m = functools.reduce(merge_moments, (_moments_for_hints(client, its) for client in clients))
        deviations = np.sqrt(m.m2 / m.value_counts + (0.0 if result.centered else m.mean**2))
        alone = dominating_column(deviations)
        # These hints replace the run's hints about the same columns, because the run does not know the values.
        for hint in hints_of_largest(deviations, names, clients):
            column = hint.partition(" alone has ")[0]
            of_columns = (hint, *(other for other in of_columns if not other.startswith(f"{column} alone has ")))
    found = (*hints.hints_of(clients, names, most=most, sizes=of_columns, id_column=alone), *of_sites)
    if found or result.hints:
        return replace(result, hints=without_repeated_hints(found))
    return result


def _moments_for_hints(client: LocalData, frame: Frame) -> Moments:
    """Return the moments of a client's rows. If the run has formed X'X, they need no further pass over the rows."""
    rows = client.in_frame(frame, once=True)
    return rows.measured.moments_with_scatter or rows.moments()


def with_agreed_columns(config: PCAConfig, coding: Coding, sites: Sequence[Table]) -> tuple[PCAConfig, list[Table]]:
    """Return the configuration with the columns that the sites agree on, and the sites with exactly these columns."""
    found = coding.with_levels_of_sites([coding.levels_at_site(site, f"client {i}") for i, site in enumerate(sites)])
    columns = found.with_indicators(config.columns or _numeric_columns(sites, coding))
    exact = [_with_exact_columns(site, columns, f"client {i}") for i, site in enumerate(sites)]
    return config.with_coding(found, columns), exact


def with_all_columns(config: PCAConfig, sites: Sequence[Table]) -> tuple[PCAConfig, list[Table]]:
    """Return the configuration with the names of all features and covariates, and the sites with these columns.

    A covariate that is a text column becomes one covariate for each of its levels.
    """
    asked = config.covariates
    assert asked is not None
    if asked.names and (nameless := [i for i, site in enumerate(sites) if not site.names]):
        raise DataError(
            f"The columns of client {nameless[0]} have no names, so covariates cannot be distinguished from features. "
            "Give data frames, or files with a line of names."
        )
    sources = {name: source_of(name) or name for name in asked.names}
    of_words = {source for source in sources.values() if any(source in site.texts for site in sites)}
    words = [name for name in asked.names if name in of_words]
    coding = Coding(tuple((name, None) for name in dict.fromkeys(sources.values()) if name in of_words))
    if words:
        found = Coding(tuple((name, None) for name in words))
        found = found.with_levels_of_sites([found.levels_at_site(site, f"client {i}") for i, site in enumerate(sites)])
        levels = {name: found.with_plain_values([(name, some)]).new_columns for name, some in found.value}
        config = config.with_levels_of_covariates(levels)
    columns = config.columns or asked.features_of(_numeric_columns(sites, coding))
    config = replace(config, columns=columns)
    if not of_words:
        return config, list(sites)
    every = config.columns_and_covariates
    assert every is not None
    return config, [_with_exact_columns(site, every, f"client {i}") for i, site in enumerate(sites)]


def _numeric_columns(sites: Sequence[Table], coding: Coding) -> tuple[str, ...]:
    """Return the names of the columns that are not text columns, and raise DataError if they differ between sites."""
    plain = [site.without(coding.words) for site in sites]
    for i, site in enumerate(plain):
        site.whole(f"client {i}")
    headings = [Heading.of_names(site.names or (), len(site.names or ())) for site in plain]
    usual = position_of_majority(headings)
    for i, heading in enumerate(headings):
        if not heading.has_same_columns(headings[usual]):
            raise heading.mismatch(f"client {i}", headings[usual], f"client {usual}").error(DataError)
    return common_column_order(plain) or tuple(sorted(plain[0].names or ()))


def _with_exact_columns(site: Table, columns: tuple[str, ...], who: str) -> Table:
    """Return the site with exactly these columns. Columns for levels are computed from the site's text columns."""
    rows = LocalData(site, who=who, missing=True, empty=True).arrange(columns)
    return replace(site, values=rows.stored_array(), names=columns, words={}, texts={}, coded=(), made=rows.table.made)
