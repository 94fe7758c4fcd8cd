"""The sites whose rows are in the result of a run, and the sites that were left out, with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from flower_pca.base import labels
from flower_pca.base.history import History

_LISTED: Final = 20  # sites that a sentence names


class LeftOut(NamedTuple):
    """A site whose rows are not in the result: its name or label, and the reason."""

    name: str
    why: str


def parted(
    names: Mapping[int, str],
    everyone: Iterable[int],
    contributors: Collection[int],
    history: History,
    *,
    otherwise: str,
    keys: Mapping[int, int] | None = None,
    unasked: Mapping[int, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the fields `site_names` and `left_out` of a result.

    Parameters
    ----------
    names : mapping
        The names of clients that have one.
    everyone : iterable of int
        The clients that there were, as the run calls them.
    contributors : collection of int
        Those of them whose rows are in the result.
    history : History
        The messages, which say why a client has failed.
    otherwise : str
        Why a client that has never failed was left out.
    keys : mapping or None, default=None
        What a result calls clients, if it calls them otherwise than the run does.
    unasked : mapping, default={}
        Why clients were left out before the first message.
    """
    keys = keys or {}
    why = {client: reason for record in history for client, reason in record.failures.items()}
    there, out = dict[int, str](), dict[int, LeftOut]()
    for client in {*everyone, *names}:
        key = keys.get(client, client)
        if client not in contributors:
            called = names.get(client) or labels.client_name({}, key)
            # A node puts its name before its reason, and the result already has the name.
            reason = why.get(str(client), unasked.get(client, otherwise)).removeprefix(f"{called}: ").rstrip(".")
            out[key] = LeftOut(called, reason)
        elif client in names:
            there[key] = names[client]
    return {"site_names": dict(sorted(there.items())), "left_out": dict(sorted(out.items()))}


def left_out_in_words(left_out: Mapping[int, LeftOut]) -> str:
    """Write a sentence on the sites that were left out, with their reasons, or "" if there are none."""
    if not left_out:
        return ""
    each = [f"{out.name} ({out.why})" for out in list(left_out.values())[:_LISTED]]
    if len(left_out) > _LISTED:
        each.append(f"{len(left_out) - _LISTED} more")
    return f"The rows of {labels.series(each)} are not in this result."


def plain_left_out(left_out: Mapping[int, LeftOut]) -> dict[str, dict[str, str]]:
    """Return the sites that were left out, as plain values by key."""
    return {str(key): out._asdict() for key, out in left_out.items()}


def unpack_left_out(plain: Mapping[str, Mapping[str, str]]) -> dict[int, LeftOut]:
    """Restore what `plain_left_out` returned."""
    return {int(key): LeftOut(str(out["name"]), str(out["why"])) for key, out in plain.items()}
