"""What the page of a personalized run says: shared and own components, whether they can be told apart, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flower_pca.algorithms.personal.closing import OWN
from flower_pca.analysis.groups import shares
from flower_pca.base import labels
from flower_pca.plots import clients
from flower_pca.report import html
from flower_pca.results.personal import SEPARABLE, UNMEASURED, PersonalResult


def words(result: PersonalResult) -> list[str]:
    """What is shared and what is not, and what theta says of it."""
    own = result.local_components
    each = f"each has {result.own_in_words} of its own"
    said = f"{_count(result.n_components_, 'component')} shared by all clients; beside them {each}."
    if not own:
        return [html.paragraph(said, "said")]
    if np.isnan(result.theta_):
        told = f"Whether the two can be told apart, theta, is {UNMEASURED}."
    elif result.theta_ < SEPARABLE:
        told = f"Theta is {result.theta_:.2g}, near 0: what is shared and what is own can hardly be told apart."
    else:
        told = f"Theta is {result.theta_:.2g}, away from 0: shared and own components can be told apart."
    if result.own:
        kept = ""
    else:
        kept = "The own components stay with the clients: this page was made without them."
    return [html.paragraph(f"{said} {told} {kept}".rstrip(), "said")]


def tables(result: PersonalResult, shards: Sequence[Any] | None) -> list[str]:
    """The clients: errors with and without their own components, and what these are made of."""
    keys = sorted(key for key in result.own if OWN in result.own[key])
    known, names = shares(result, shards), labels.column_names(result.feature_names_in_, result.n_features_in_)
    if not keys:
        return []
    head, lines = ["client"], [[labels.client_name(result.site_names, key)] for key in keys]
    if shards is not None and known is not None:
        head += ["rows", "error, shared only", "error, with own"]
        sizes = clients.rows(shards)
        figures = {key: [f"{sizes[key]:,}", f"{a:.4g}", f"{b:.4g}"] for key, a, b in
                   zip(known.clients, known.without, known.rest, strict=True)}  # fmt: skip
        lines = [line + figures[key] for line, key in zip(lines, keys, strict=True)]
    head += ["variances along own components", "largest weights in the first"]
    for line, key in zip(lines, keys, strict=True):
        own = result.own[key]
        variances = ", ".join(f"{v:.3g}" for v in own["variances"][:4]) + (", ..." if len(own["variances"]) > 4 else "")
        line += [variances, labels.in_words(own[OWN][0], names) if len(own[OWN]) else ""]
    return [html.table("Clients: what is their own", head, lines, words=[0, len(head) - 2, len(head) - 1])]


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"{number} {noun} is"
    return f"{number} {noun}s are"
