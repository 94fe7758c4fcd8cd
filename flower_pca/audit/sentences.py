"""The sentences of the page of rules: what each rule allows, and what a missing rule leaves open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from flower_pca import registry
from flower_pca.audit.served import comparing, has_noise, kinds, peaks, why_not
from flower_pca.base import labels
from flower_pca.clients.policy import promises, small_cells
from flower_pca.clients.policy.rules import TELLS, Rules, everything
from flower_pca.core.kinds import KINDS, Kind

_COUNTED: Final = {"messages": "message", "messages_ever": "message", "columns": "column"}
_UNTIL: Final = {"answer": "it continues to do so", "refuse": "it refuses"}


@dataclass(frozen=True)
class Line:
    """A sentence of the page: its rules, the condition under which it applies, and its words."""

    rules: tuple[str, ...]
    applies: Callable[[Rules], bool]
    words: str
    left_open: bool = False

    def says(self, rules: Rules) -> str:
        """Return the sentence with the values of the rules."""
        groups, losses = rules.group_limits or (0, 0)
        named = {"compares": ", ".join(comparing(rules))}
        named |= {name: labels.count(getattr(rules, f"max_{name}") or 0, what) for name, what in _COUNTED.items()}
        groups_of = labels.count(groups, "group")
        if losses:
            gone = f"at most {labels.count(losses, 'member')}"
        else:
            gone = "nobody"
        named |= {"until": _UNTIL[rules.on_small_change], "most_codes": f"{small_cells.MOST}"}
        return self.words.format_map({**vars(rules), **named, "groups": groups_of, "gone": gone})


def _of_rule(name: str, tells: str) -> Line:
    """Return the sentence of a rule whose field declares it."""
    words = f"{tells[0].upper()}{tells[1:]}: {{{name}}}."
    return Line((name,), lambda r: bool(getattr(r, name)) and not has_noise(r), words)


SEEN: Final = (
    Line(
        ("masked_only", "min_peers"),
        lambda r: r.masked_only and r.trusted_keys is not None,
        "Sums over this node and others, {min_peers} at least, whose keys are on its own list. The server sees no "
        "answer of this node alone.",
    ),
    Line(
        ("masked_only", "min_peers"),
        lambda r: r.masked_only and r.trusted_keys is None,
        "Sums over this node and others, {min_peers} at least, whoever they are.",
    ),
    Line(
        ("masked_only", "min_peers"),
        lambda r: r.masked_only and r.max_epsilon is None,
        "Only columns that {min_peers} of these others have measured too, or that have one value in all rows of all: "
        "nodes tell each other, sealed, and no server can change it. A stream's columns are exempt.",
    ),
    Line(
        ("masked_only",),
        lambda r: not r.masked_only,
        "Its own answers. In a run with masks the server sees sums only, but the server decides whether a run has "
        "masks. With masked_only the node decides.",
    ),
    Line(
        ("trusted_keys",),
        lambda r: r.masked_only and r.trusted_keys is None,
        "Masks: a server that takes part in place of others sees this node's answer. trusted_keys prevents it.",
        left_open=True,
    ),
    Line(
        ("min_peers",),
        lambda r: r.masked_only and r.min_peers == 1,
        "A sum over two nodes reveals to each of them what the other has answered. A larger min_peers prevents it.",
        left_open=True,
    ),
    Line(
        ("single_masks",),
        lambda r: r.single_masks,
        "Sums without self-masks: a server that lies about who dropped out sees an answer. Leave single_masks out.",
        left_open=True,
    ),
    Line(
        ("min_noise",),
        lambda r: r.min_noise is not None,
        "Noise on every answer, under masks on every sum: its deviation is {min_noise} times the clip squared or more.",
    ),
    Line(("max_clip",), lambda r: r.max_clip is not None, "Rows clipped to a length of {max_clip} at most, and noise."),
    Line(
        ("min_noise", "max_epsilon"),
        lambda r: r.allow_noise and not has_noise(r),
        "No noise, unless the run asks for it. min_noise or max_epsilon require it.",
    ),
    Line(("allow_noise",), lambda r: not r.allow_noise, "No noise: runs with dp are refused."),
    Line(
        ("allow_noise", "max_epsilon"),
        lambda r: r.allow_noise and not has_noise(r),
        "Single rows, because many runs average the noise away. max_epsilon or allow_noise=False prevents it.",
        left_open=True,
    ),
    Line(
        ("max_colluders", "trusted_keys"),
        lambda r: has_noise(r) and r.trusted_keys is not None,
        "Under masks its share of that noise: it counts on all that a sum cannot do without but {max_colluders}. "
        "If only h of m counted on are honest, the noise is the root of h / m of what is said, and epsilon grows.",
    ),
    Line(
        ("trusted_keys",),
        lambda r: has_noise(r) and r.trusted_keys is None,
        "Under masks all of that noise by this node alone: without trusted_keys the others may be the server's own.",
    ),
    Line(
        ("gap_values",),
        lambda r: has_noise(r) and r.gap_values is None and r.max_epsilon is None,
        "Nothing at all where it has missing values and a run asks for noise. gap_values can name constants for them.",
    ),
    Line(
        ("gap_values",),
        lambda r: r.max_epsilon is not None and r.gap_values is None,
        "A row with a cell that is no finite number as a row of zeros. gap_values can name constants for such cells.",
    ),
    Line(
        ("share_own",),
        lambda r: r.share_own and not r.masked_only,
        "Its own components, if a personalized run asks for them, because of share_own.",
    ),
    Line(
        ("share_names",),
        lambda r: r.share_names,
        "What its columns are called, and its own name. With share_names=False only their number and a digest.",
    ),
    *(_of_rule(f.name, f.metadata[TELLS]) for f in fields(Rules) if TELLS in f.metadata),
    Line(("share_names",), lambda r: not r.share_names, "How many columns it has, and a digest of their names."),
    Line(
        ("split_columns",),
        lambda r: bool(r.split_columns) and not has_noise(r),
        "The scores of each person, told to all parties of a run over columns, because of split_columns. Without "
        "masks, the server also learns how similar any two people are by this node's columns, and so few columns up "
        "to a rotation.",
    ),
    Line(
        ("split_columns",),
        lambda r: r.split_columns == "any" and not has_noise(r),
        "All rows, by runs over columns that are scaled in two ways, or by these beside runs over rows: "
        "split_columns=any serves all of them. Name one scale.",
        left_open=True,
    ),
    Line(
        ("split_columns",),
        lambda r: not r.split_columns,
        "Nothing of single people by runs whose parties hold different columns: split_columns is not set.",
    ),
    Line(
        ("noise_seed",),
        lambda r: r.noise_seed is not None,
        "The noise of masks, by whoever knows its seed: noise_seed is for simulations only.",
        left_open=True,
    ),
)
LASTING: Final = (
    Line(
        ("min_rows",),
        lambda r: r.min_rows > 1 and r.max_epsilon is None and r.min_change is not None,
        "Nothing while it has fewer than {min_rows} rows.",
    ),
    Line(
        ("min_rows",),
        lambda r: r.min_rows > 1 and r.max_epsilon is None and r.min_change is None,
        "While it has fewer than {min_rows} rows, only whether it has any: it refuses, but without rows it adds zeros "
        "to masked sums.",
    ),
    Line(
        ("min_rows",),
        lambda r: r.min_rows == 1 and not has_noise(r),
        "The row of a node with one row, and nearly the rows of a node with two. min_rows prevents such answers.",
        left_open=True,
    ),
    Line(
        ("answers",),
        lambda r: r.answers != "rows" and not has_noise(r),
        "Of single rows what C and the means tell, and no more, because no number of the server meets a row "
        "(answers={answers}).",
    ),
    Line(
        ("answers",),
        lambda r: r.answers == "rows" and not has_noise(r),
        'Single rows, by some twenty messages: with answers="rows" a server can make rounding compare them. '
        'answers="fixed" prevents it.',
        left_open=True,
    ),
    Line(
        ("max_columns",),
        lambda r: r.max_columns is not None,
        "{columns} of d numbers at most, over all runs, plain or masked.",
    ),
    Line(
        (),
        lambda r: not has_noise(r),
        "All of C by enough messages. If there are no more rows than columns, C determines the rows up to a rotation. "
        "Masks hide it in the C of all nodes, and noise blurs it. max_columns only limits how many numbers leave.",
        left_open=True,
    ),
    Line(
        ("max_epsilon", "max_delta"),
        lambda r: r.max_epsilon is not None,
        "Of any single row epsilon {max_epsilon} at delta {max_delta} at most, over all runs that one ledger counts; "
        "under masks with trusted_keys as long as those that it counts on are honest.",
    ),
    Line(
        ("max_epsilon",),
        lambda r: has_noise(r) and r.max_epsilon is None,
        "What noise hides, by asking again and again: max_epsilon bounds all runs together.",
        left_open=True,
    ),
    Line(
        ("allow",),
        lambda r: bool(comparing(r)),
        "Single rows, under masks too, by {compares}: they compare rows by design. allow leaves them out.",
        left_open=True,
    ),
    Line(
        ("missing",),
        lambda r: r.missing == "own_mean" and not has_noise(r),
        "Of missing values what C and the means tell, in which columns there are any, and which columns have no value: "
        "its own means fill them.",
    ),
    Line(
        ("missing", "min_rows"),
        lambda r: r.missing == "mean",
        "The sum of the rows with a gap in a column, where there are {min_rows} such rows or more. "
        'missing="own_mean" prevents it.',
        left_open=True,
    ),
    Line(
        ("masked_only",),
        peaks,
        'One true entry of each column, by a run with scale="max_abs". Runs with masks or noise cannot use this scale.',
        left_open=True,
    ),
    Line(
        ("max_groups", "max_dropouts"),
        lambda r: r.counts_groups,
        "Sums over {groups} of nodes at most, with {gone} of a group gone.",
    ),
    Line(
        ("max_dropouts",),
        lambda r: r.masked_only and not r.counts_groups,
        "How large its answers are: a server sees whether they keep to the bounds that it sets for masked sums. "
        "max_dropouts limits how often.",
        left_open=True,
    ),
    Line(
        ("max_groups", "max_dropouts"),
        lambda r: r.masked_only and not r.counts_groups,
        "Its own answers, as differences of sums with it and without it, or over other groups. max_groups and "
        "max_dropouts bound them.",
        left_open=True,
    ),
    Line(("max_messages",), lambda r: r.max_messages is not None, "{messages} a run at most."),
    Line(("max_messages_ever",), lambda r: r.max_messages_ever is not None, "{messages_ever} at most, over all runs."),
    Line(
        ("min_rows", "allow_sparse_columns"),
        lambda r: r.min_rows > 1 and r.allow_sparse_columns is not True and r.max_epsilon is None,
        "Nothing of columns in which fewer than {min_rows} rows, yet some, have a value, or another than most. In "
        "a table of up to {most_codes} columns of codes, if a sum of these times small whole numbers is of that kind, "
        "nothing of the one whose name comes last, whichever columns a run asks for. A stream's are exempt, and what "
        "allow_sparse_columns names: {allow_sparse_columns}.",
    ),
    Line(
        ("allow_sparse_columns",),
        lambda r: r.allow_sparse_columns is True and not has_noise(r),
        "The carriers of rare values, because allow_sparse_columns permits requests for all such columns.",
        left_open=True,
    ),
    Line(
        ("min_change", "on_small_change"),
        lambda r: r.min_change is not None,
        "Nothing of rows that come, go or change: it answers from its rows as they were when it first answered. If its "
        "file differs, {until}. A stream's batches are told as they come.",
    ),
    Line(
        ("min_change", "id_column"),
        lambda r: r.min_change is not None and r.id_column is not None,
        "Of people who come later, known by {id_column}, what {min_change} or more of them tell together, under masks "
        "too, once they could be a table of their own. Whoever gets a second id counts as one who comes.",
    ),
    Line(
        ("max_epsilon",),
        lambda r: r.max_epsilon is not None,
        "Nothing of rows that come, go or change: it answers from its rows as they were when it first answered.",
    ),
    Line(
        ("min_rows",),
        lambda r: not has_noise(r),
        "A person who differs from all others by a value far beyond theirs; in a combination of columns of "
        "measurements, such as a total that is the sum of its parts for all others; or in one of codes, if there are "
        "more than {most_codes} columns of them, or other numbers than small whole ones make the combination.",
        left_open=True,
    ),
    Line(
        ("min_rows",),
        lambda r: not has_noise(r),
        "Of every two columns, the sum of the products of their values, as C holds it: of two codes, how many people "
        "have both; of two measurements, the product for a single person, if all others lack one of them.",
        left_open=True,
    ),
    Line(
        ("masked_only",),
        lambda r: r.masked_only and not has_noise(r),
        "A combination of columns that is the same in all rows of every other node, as a total is that is the sum of "
        "its parts: of it a sum is this node's own. Nodes look at single columns only.",
        left_open=True,
    ),
    Line(
        ("data_name", "memory_dir"),
        lambda r: r.keeps_ledger,
        "The same again with another memory_dir, as every folder has ledgers of its own. Within a folder a node counts "
        "in every ledger that knows its rows or its file; data_name names the ledger whatever becomes of these.",
        left_open=True,
    ),
    Line(
        ("min_change",),
        lambda r: not r.keeps_rows,
        "What changes: when rows come or go, the difference of both versions reveals them. min_change keeps the rows "
        "as they were.",
        left_open=True,
    ),
)


_WHOLE: Final = "C = X'X of its rows in a frame of the server's"
_APP: Final = (
    "The app that comes with a run can read what the node's user can read: no rule holds against it. Let only trusted "
    "entities start runs."
)


@dataclass(frozen=True)
class Disclosures:
    """What a server can learn from a node.

    Attributes
    ----------
    rules : dict
        Those that are not left at their defaults.
    profile : tuple of str
        What the profile that they begin with promises.
    weaker : tuple of str
        What of that these rules give up.
    seen : tuple of str
        What the server sees of an answer.
    served : dict
        What a run of each algorithm that is served brings out; first what all of them do.
    refused : dict
        The algorithms that are not served, and why.
    lasting : tuple of str
        What all messages together can tell, and what bounds it.
    open : tuple of str
        What these rules do not prevent, and the rule that would.
    """

    rules: dict[str, str]
    profile: tuple[str, ...]
    weaker: tuple[str, ...]
    seen: tuple[str, ...]
    served: dict[str, str]
    refused: dict[str, str]
    lasting: tuple[str, ...]
    open: tuple[str, ...]

    def text(self) -> str:
        """Write the page."""
        own = ", ".join(f"{name}={value}" for name, value in self.rules.items()) or "all at their defaults"
        blocks = [f"Rules: {own}"]
        for head, lines in (
            ("What its profile promises", self.profile),
            ("What of that its own rules give up", self.weaker),
            ("What the server sees", self.seen),
            (f"What runs of these algorithms can bring out, with {_WHOLE}", _list(self.served)),
            ("Not served", _list(self.refused)),
            ("What all messages together tell", self.lasting),
            ("What these rules leave open", self.open),
        ):
            if lines:
                blocks.append("\n".join([head, *(f"  - {line}" for line in lines)]))
        return "\n\n".join(blocks) + "\n"


def _list(named: dict[str, str]) -> tuple[str, ...]:
    """Join names that have the same words."""
    alike: dict[str, list[str]] = {}
    for name, words in named.items():
        alike.setdefault(words, []).append(name)
    return tuple(f"{', '.join(names)}: {words}" for words, names in alike.items())


def _words(found: frozenset[Kind]) -> str:
    """Describe these kinds in the order of the table. Kinds of other stages come last."""
    places = {kind: place for place, kind in enumerate(KINDS)}
    return "; ".join(kind.tells for kind in sorted(found, key=lambda kind: places.get(kind, len(KINDS))))


def telling(rules: Rules) -> Disclosures:
    """Return what a server can learn from a node under these rules."""
    every = everything()
    refused = {name: why for name in every if (why := why_not(rules, name))}
    contents = {name: kinds(rules, name) for name in every if name not in refused}
    # All these runs begin with an opening.
    runs = [found for name, found in contents.items() if name in registry.ALGORITHMS]
    if len(runs) > 1:
        common = frozenset.intersection(*runs)
    else:
        common = frozenset()
    beside = {name: found - common if name in registry.ALGORITHMS else found for name, found in contents.items()}
    served = {name: _words(found) or "nothing beside" for name, found in beside.items()}
    if common:
        served = {"any algorithm": _words(common), **served}
    lines = [line for line in SEEN + LASTING if line.applies(rules)]
    given = {f.name: getattr(rules, f.name) for f in fields(rules) if getattr(rules, f.name) != f.default}
    return Disclosures(
        rules={name: str(value) for name, value in given.items()},
        profile=tuple(filter(None, [promises.promise(rules)])),
        weaker=tuple(promises.weaker(rules).values()),
        seen=tuple(line.says(rules) for line in lines if line in SEEN and not line.left_open),
        served=served,
        refused=refused,
        lasting=tuple(line.says(rules) for line in lines if line in LASTING and not line.left_open),
        open=(*(line.says(rules) for line in lines if line.left_open), _APP),
    )
