"""Columns of words in a simulation: what sites of a deployment tell one another before the run is looked up here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flower_pca.base.errors import DataError
from flower_pca.core.question import Question
from flower_pca.names.coding import Coding
from flower_pca.names.columns import Heading
from flower_pca.names.sites import SiteRows
from flower_pca.rows.local import LocalData
from flower_pca.simulation.sites import common_order


def agreed(question: Question, coding: Coding, sites: Sequence[SiteRows]) -> tuple[Question, list[SiteRows]]:
    """The question with all its columns by name, and the sites with just these columns."""
    found = coding.union([coding.own(site, f"client {i}") for i, site in enumerate(sites)])
    columns = found.spread(question.columns or _others(sites, coding))
    asked = replace(question, columns=columns, **{coding.field: found.value})
    return asked, [_exactly(site, columns, f"client {i}") for i, site in enumerate(sites)]


def _others(sites: Sequence[SiteRows], coding: Coding) -> tuple[str, ...]:
    """The columns beside those of words, which have to be the same at all sites."""
    plain = [_without(site, coding.words) for site in sites]
    for i, site in enumerate(plain):
        site.whole(f"client {i}")
    first, *others = [Heading.of_names(site.names or (), len(site.names or ())) for site in plain]
    for i, heading in enumerate(others, start=1):
        if not heading.like(first):
            raise heading.mismatch(f"client {i}", first, "client 0").error(DataError)
    return common_order(plain) or tuple(sorted(plain[0].names or ()))


def _without(site: SiteRows, names: Sequence[str]) -> SiteRows:
    """The site without these columns."""
    kept = [j for j, name in enumerate(site.names or ()) if name not in names]
    words = {name: bad for name, bad in site.words.items() if name not in names}
    return replace(site, values=site.values[:, kept], names=tuple((site.names or ())[j] for j in kept), words=words)


def _exactly(site: SiteRows, columns: tuple[str, ...], who: str) -> SiteRows:
    """The site with these columns, made of words where it has none of the name."""
    rows = LocalData(site, who=who, missing=True).arrange(columns)
    return replace(site, values=rows.plain(), names=columns, words={}, texts={}, coded=())
