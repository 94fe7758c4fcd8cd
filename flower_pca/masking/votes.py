"""What clients should have in common, by what most of them have: columns, and the course of messages they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flower_pca.base.errors import sentence
from flower_pca.core.stage import Arrays


def outvoted(answers: Mapping[int, Arrays], known: int) -> tuple[int, dict[int, str]]:
    """The columns of the run, `known` or else those of most clients; and why clients with others are left out.

    Of a client that has no rows yet they are 0, and then not counted; of the run, if all are like that.
    """
    columns = {client: d for client, arrays in answers.items() if (d := int(arrays["mask.d"]))}
    votes = Counter(columns.values())
    d = known or max(votes, key=votes.__getitem__, default=0)
    rule, remedy = f"{d}, as at most clients", "Align the features first."
    return d, {
        client: sentence(f"The number of columns of client {client}", rule, other, remedy)
        for client, other in columns.items()
        if other != d
    }


def strayed(answers: Mapping[int, Arrays]) -> tuple[int, ...]:
    """The clients whose answers are of another course of messages than those of most."""
    courses = {client: arrays["mask.past"].tobytes() for client, arrays in answers.items()}
    votes = Counter(courses.values())
    most = max(votes, key=votes.__getitem__, default=b"")
    return tuple(client for client, course in courses.items() if course != most)


def why(client: int, then: str) -> str:
    """What is said of a client that has strayed."""
    what = f"What client {client} keeps of this run"
    return sentence(what, "from the same messages, in the same order, as that of the others", "another course", then)
