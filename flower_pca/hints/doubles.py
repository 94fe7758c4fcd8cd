"""Find rows that occur more than once, at one site or at two sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from flower_pca.base import labels
from flower_pca.base.linalg import Array
from flower_pca.hints.sites import FEW, MANY, AllSites, Site


def doubles(data: AllSites) -> Iterator[str]:
    """Yield hints about rows that occur at two sites, or more than once at one site."""
    if not data.has_equal_rows:
        return
    sites = data.sites
    every = [site.row_hashes for site in sites]
    whose = np.repeat(np.arange(len(sites)), list(map(len, every)))
    marks = np.concatenate(every)
    # A stable sort keeps equal rows in the order of their sites.
    order = np.argsort(marks, kind="stable")
    ordered = marks[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    looked_at = zip(sites, data.distinct_counts, strict=True)
    reliable = [_are_equal_rows_suspicious(site, different) for site, different in looked_at]
    owners = whose[order]
    pairs = Counter(zip(owners[again].tolist(), owners[again + 1].tolist(), strict=True))
    for (i, j), count in pairs.items():
        one, other = sites[i], sites[j]
        if i != j and np.array_equal(one.row_hashes, other.row_hashes) and len(np.unique(one.row_hashes)) > FEW:
            yield f"{other.who} holds the same rows as {one.who}. Leave one of them out."
        elif reliable[i] and reliable[j] and count >= least_repeated(min(map(len, (every[i], every[j])))):
            few = count == 1
            if i == j:
                _, first = np.unique(one.row_hashes, return_index=True)
                row = int(np.setdiff1d(np.arange(len(one.row_hashes)), first, assume_unique=True)[0])
                what, remedy = "repeats an earlier row" if few else "repeat earlier rows", ""
            else:
                row = int(np.flatnonzero(np.isin(other.row_hashes, one.row_hashes))[0])
                what, remedy = f"{'is' if few else 'are'} also in {one.who}", " from one of the two"
            yield (
                f"{labels.count(count, 'row')} of {other.who} {what}. The first is {other.place(row)}. Remove "
                f"{'it' if few else 'them'}{remedy}."
            )


def least_repeated(n: int) -> float:
    """Return the smallest number of repeated rows at a site with n rows that causes a hint."""
    return max(FEW, 0.05 * n)


def _are_equal_rows_suspicious(site: Site, different: Array) -> bool:
    """Return whether two different rows of a site are unlikely to have equal values by accident.

    The probability is estimated from how often the values of each column recur. Rows that occur twice are counted only
    once, because otherwise all of their values would recur.
    """
    measures = np.flatnonzero(different > MANY)
    if len(measures) < 2:
        return False
    distinct, once = np.unique(site.row_hashes, return_index=True)
    # A sample with marks of all rows holds different rows only.
    rows = site.rows[once] if site.marks is None else site.rows
    # `again` becomes the logarithm of the number of pairs of rows that would be equal by accident if the columns were
    # independent.
    again = 2.0 * np.log(max(len(distinct), 2))
    for j in measures[:64]:
        values = rows[:, j]
        _, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        # Count the pairs of rows with equal values. One is added because a small sample may have no equal values.
        alike = np.sum(counts * (counts - 1.0)) / 2.0 + 1.0
        pairs = counts.sum() * (counts.sum() - 1.0) / 2.0 + 1.0
        again += float(np.log(alike / pairs))
    return bool(again < np.log(0.01))
