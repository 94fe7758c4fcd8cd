"""The sites whose rows are in a result, and the sites that were left out, each with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from flower_pca.base import labels
from flower_pca.base.history import History

_LISTED: Final = 20  # maximum number of sites that a sentence names


class LeftOut(NamedTuple):
    """A site whose rows are not in the result: its name or label, and the reason."""

    name: str
    why: str


def site_fields(
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
        The names of clients, by number in the run. Clients without a name are not listed.
    everyone : iterable of int
        The numbers of all clients in the run.
    contributors : collection of int
        The numbers of the clients whose rows are in the result.
    history : History
        The messages of the run, which record why clients failed.
    otherwise : str
        The reason to report for a client that was left out without a failure.
    keys : mapping or None, default=None
        The keys of clients in the result, if they differ from the numbers in the run.
    unasked : mapping, default={}
        The reasons why clients were left out before the first message.
    """
    keys = keys or {}
    why = {client: reason for record in history for client, reason in record.failures.items()}
    included, excluded = dict[int, str](), dict[int, LeftOut]()
    for client in {*everyone, *names}:
        key = keys.get(client, client)
        if client not in contributors:
            called = names.get(client) or labels.client_name({}, key)
            # A node writes its name before its reason. The name is removed, because `LeftOut` holds it separately.
            reason = why.get(str(client), unasked.get(client, otherwise)).removeprefix(f"{called}: ").rstrip(".")
            excluded[key] = LeftOut(called, reason)
        elif client in names:
            included[key] = names[client]
    return {"site_names": dict(sorted(included.items())), "left_out": dict(sorted(excluded.items()))}


def left_out_in_words(left_out: Mapping[int, LeftOut]) -> str:
    """Return a sentence that lists the sites that were left out and the reasons, or "" if no site was left out."""
    if not left_out:
        return ""
    each = [f"{out.name} ({out.why})" for out in list(left_out.values())[:_LISTED]]
    if len(left_out) > _LISTED:
        each.append(f"{len(left_out) - _LISTED} more")
    return f"The rows of {labels.join_with_and(each)} are not in this result."


def plain_left_out(left_out: Mapping[int, LeftOut]) -> dict[str, dict[str, str]]:
    """Return the sites that were left out, by key, as plain values for JSON."""
    return {str(key): out._asdict() for key, out in left_out.items()}


def unpack_left_out(plain: Mapping[str, Mapping[str, str]]) -> dict[int, LeftOut]:
    """Restore the sites that were left out from the plain values of `plain_left_out`."""
    return {int(key): LeftOut(str(out["name"]), str(out["why"])) for key, out in plain.items()}
