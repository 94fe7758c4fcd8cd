"""The sentences on the page about a node's rules: what each rule allows, and what a missing rule leaves open."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Final

from flower_pca import registry
from flower_pca.audit.served import allows_peaks, has_noise, kinds_of_answers, reason_not_served, served_row_comparers
from flower_pca.base import labels
from flower_pca.clients.policy import promises, small_cells
from flower_pca.clients.policy.rules import TELLS, Rules, allowed_names
from flower_pca.core.kinds import KINDS, Kind

_COUNTED: Final = {"messages": "message", "messages_ever": "message", "columns": "column"}
_UNTIL: Final = {
    "answer": "it continues to answer from them",
    "refuse": "it refuses, and the server learns that something has changed",
}


@dataclass(frozen=True)
class DisclosureSentence:
    """A sentence on the page, with the rules that it concerns and the condition under which it applies.

    `left_open` is True for sentences about what these rules do not prevent.
    """

    rules: tuple[str, ...]
    applies: Callable[[Rules], bool]
    words: str
    left_open: bool = False

    def words_for(self, rules: Rules) -> str:
        """Return the words with the values of the rules filled in."""
        groups, losses = rules.group_limits or (0, 0)
        named = {name: labels.count(getattr(rules, f"max_{name}") or 0, what) for name, what in _COUNTED.items()}
        named |= {
            "peers": labels.count(rules.min_peers, "other node"),
            "groups": labels.count(groups, "group"),
            "gone": f"at most {labels.count(losses, 'member')}" if losses else "no member",
            "until": _UNTIL[rules.on_small_change],
            "compares": ", ".join(served_row_comparers(rules)),
            "answers_of": _answers_of(rules),
            "statistics": _statistics_of(rules),
            "exempt": _sentence_on_exemptions(rules),
            "codes": f"{small_cells.CODES}",
            "largest": f"{small_cells.LARGEST}",
            "most_codes": f"{small_cells.MOST:,}",
        }
        return self.words.format_map({**vars(rules), **named})


def _answers_of(rules: Rules) -> str:
    """Return the words that describe which answers are computed from statistics."""
    words = "all answers without noise" if rules.allow_noise else "all answers"
    if rules.split_columns:
        words += " in runs over rows"
    if found := served_row_comparers(rules):
        words += f", except those of {', '.join(found)},"
    return words


def _statistics_of(rules: Rules) -> str:
    """Return the words that describe the statistics from which answers are computed."""
    if allows_peaks(rules):
        return "the number of rows, the means, C and the largest absolute value of each column"
    return "the number of rows, the means and C"


def _sentence_on_exemptions(rules: Rules) -> str:
    """Return the sentence that names what is exempt from the search for rare values: streams, and allowed columns."""
    allowed = rules.allow_sparse_columns
    if not allowed:
        return "Streams are exempt."
    if not isinstance(allowed, str):
        allowed = ", ".join(allowed) if isinstance(allowed, Collection) else ""
    return f"Streams are exempt, and so are these columns (allow_sparse_columns): {allowed}."


def _searches_rare_values(rules: Rules) -> bool:
    """Return whether the node searches its columns for values that only few people have."""
    return rules.min_rows > 1 and rules.allow_sparse_columns is not True


def _sentence_of_rule(name: str, tells: str) -> DisclosureSentence:
    """Return the sentence about what a rule lets the server see. `tells` is the part of it that the rule declares."""
    words = f"The server sees {tells}: {{{name}}}."
    return DisclosureSentence((name,), lambda r: bool(getattr(r, name)) and not has_noise(r), words)


SEEN: Final = (
    DisclosureSentence(
        ("masked_only", "min_peers"),
        lambda r: r.masked_only and r.trusted_keys is not None,
        "The server sees only sums over this node and at least {peers}. It sees no answer of this node alone. All "
        "members of a sum have keys on this node's own list.",
    ),
    DisclosureSentence(
        ("masked_only", "min_peers"),
        lambda r: r.masked_only and r.trusted_keys is None,
        "The server sees only sums over this node and at least {peers}. This node does not check who the other "
        "members are.",
    ),
    DisclosureSentence(
        ("masked_only", "min_peers"),
        lambda r: r.masked_only and r.max_epsilon is None,
        "This node answers only for columns that at least {peers} of the sum measured, or that have the same value in "
        "all rows of all its nodes (compared by a digest of one byte). Nodes tell each other in sealed letters, which "
        "no server can change. Streams and runs over columns are exempt.",
    ),
    DisclosureSentence(
        ("masked_only",),
        lambda r: not r.masked_only,
        "The server sees this node's own answers. In a run with masks it sees only sums, but the server decides "
        "whether a run has masks. With masked_only, this node decides.",
    ),
    DisclosureSentence(
        ("trusted_keys",),
        lambda r: r.masked_only and r.trusted_keys is None,
        "A server that takes part in a sum in place of the other nodes can compute this node's answer. trusted_keys "
        "prevents this.",
        left_open=True,
    ),
    DisclosureSentence(
        ("min_peers",),
        lambda r: r.masked_only and r.min_peers == 1,
        "A sum over two nodes reveals to each of them what the other has answered. A larger min_peers prevents this.",
        left_open=True,
    ),
    DisclosureSentence(
        ("single_masks",),
        lambda r: r.single_masks,
        "This node takes part in sums without self-masks, in which a server that lies about who dropped out can see an "
        "answer. To prevent this, leave single_masks out.",
        left_open=True,
    ),
    DisclosureSentence(
        ("min_noise",),
        lambda r: r.min_noise is not None,
        "Every answer has noise, or under masks every sum. The standard deviation of the noise is at least {min_noise} "
        "times the squared clip.",
    ),
    DisclosureSentence(
        ("max_clip",),
        lambda r: r.max_clip is not None,
        "Rows are clipped to a length of at most {max_clip}, and this node answers only runs with noise.",
    ),
    DisclosureSentence(
        ("min_noise", "max_epsilon"),
        lambda r: r.allow_noise and not has_noise(r),
        "Answers have no noise, unless the run asks for it. min_noise or max_epsilon would require it.",
    ),
    DisclosureSentence(
        ("allow_noise",), lambda r: not r.allow_noise, "Answers have no noise: this node refuses runs with dp."
    ),
    DisclosureSentence(
        ("allow_noise", "max_epsilon"),
        lambda r: r.allow_noise and not has_noise(r),
        "A server can average the noise of many runs away, and then learn single rows. max_epsilon or "
        "allow_noise=False prevents this.",
        left_open=True,
    ),
    DisclosureSentence(
        ("max_colluders", "trusted_keys"),
        lambda r: has_noise(r) and r.trusted_keys is not None,
        "This node answers only runs with noise. Under masks it adds only its share of the noise. It relies on m "
        "honest nodes: m is the number of nodes that the sum needs, minus {max_colluders}. With only h honest nodes, "
        "the noise is the root of h / m times the stated noise, and epsilon grows.",
    ),
    DisclosureSentence(
        ("trusted_keys",),
        lambda r: has_noise(r) and r.trusted_keys is None,
        "This node answers only runs with noise. Under masks it adds all of the noise itself, because without "
        "trusted_keys the other nodes may belong to the server.",
    ),
    DisclosureSentence(
        ("gap_values",),
        lambda r: has_noise(r) and r.gap_values is None and r.max_epsilon is None,
        "If columns of a run have missing values, this node refuses the run. gap_values can name constants for them.",
    ),
    DisclosureSentence(
        ("gap_values",),
        lambda r: r.max_epsilon is not None and r.gap_values is None,
        "A row with a cell that is not a finite number counts as a row of zeros. gap_values can name constants for "
        "such cells.",
    ),
    DisclosureSentence(
        ("share_local",),
        lambda r: r.share_local and not r.masked_only,
        "If a personalized run asks for this node's own components, the server sees them, because of share_local.",
    ),
    DisclosureSentence(
        ("share_names",),
        lambda r: r.share_names,
        "The server sees the names of this node's columns, and the node's own name. With share_names=False it would "
        "see only the number of columns and a digest of their names.",
    ),
    *(_sentence_of_rule(f.name, f.metadata[TELLS]) for f in fields(Rules) if TELLS in f.metadata),
    DisclosureSentence(
        ("share_names",),
        lambda r: not r.share_names,
        "The server sees how many columns this node has, and a digest of their names.",
    ),
    DisclosureSentence(
        ("split_columns",),
        lambda r: bool(r.split_columns) and not has_noise(r),
        "In a run over columns, the server and all parties see the scores of each person, because of split_columns. "
        "Without masks, the server also learns how similar any two people are by this node's columns. With enough "
        "messages, this determines the columns up to a rotation.",
    ),
    DisclosureSentence(
        ("split_columns",),
        lambda r: r.split_columns == "any" and not has_noise(r),
        "split_columns=any serves runs over columns with every scale, and runs over rows. From two of these together, "
        "a server can compute all rows. To prevent this, name one scale.",
        left_open=True,
    ),
    DisclosureSentence(
        ("split_columns",),
        lambda r: not r.split_columns,
        "This node refuses runs whose parties hold different columns of the same people, because split_columns is not "
        "set. Such runs would reveal scores of each person.",
    ),
    DisclosureSentence(
        ("noise_seed",),
        lambda r: r.noise_seed is not None,
        "Whoever knows the seed can remove the noise under masks. noise_seed is for simulations only.",
        left_open=True,
    ),
)
LASTING: Final = (
    DisclosureSentence(
        ("min_rows",),
        lambda r: r.min_rows > 1 and r.max_epsilon is None and r.min_change is not None,
        "If this node has fewer than {min_rows} rows, it refuses every message. The server learns only this.",
    ),
    DisclosureSentence(
        ("min_rows",),
        lambda r: r.min_rows > 1 and r.max_epsilon is None and r.min_change is None,
        "If this node has fewer than {min_rows} rows, it refuses every message. Without any rows, it adds zeros to "
        "masked sums instead. The server then learns only that there are so few rows, and whether there are any.",
    ),
    DisclosureSentence(
        ("min_rows",),
        lambda r: r.min_rows == 1 and not has_noise(r),
        "If this node has one row, its answer shows this row. If it has two rows, its answer nearly shows both. "
        "min_rows prevents such answers.",
        left_open=True,
    ),
    DisclosureSentence(
        ("answers",),
        lambda r: r.answers != "rows" and not has_noise(r),
        "This node measures statistics of its rows once, and computes {answers_of} from these statistics. So these "
        "answers tell no more about single rows than {statistics} do (answers={answers}).",
    ),
    DisclosureSentence(
        ("answers",),
        lambda r: r.answers == "rows" and not has_noise(r),
        'With some twenty messages, a server can learn single rows: with answers="rows" it can make rounding compare '
        'them. answers="fixed" prevents this.',
        left_open=True,
    ),
    DisclosureSentence(
        ("max_columns",),
        lambda r: r.max_columns is not None,
        "In all runs together, this node sends at most {columns} of d numbers, with or without masks. d is the number "
        "of columns in a run. Single whole numbers, such as the number of rows, do not count.",
    ),
    DisclosureSentence(
        (),
        lambda r: not r.masked_only and not has_noise(r),
        "With enough messages, the server learns all of C. If there are no more rows than columns, C determines the "
        "rows up to a rotation. Masks would hide C in the sum over all nodes, and noise would blur it. max_columns "
        "only limits how many numbers leave this node.",
        left_open=True,
    ),
    DisclosureSentence(
        (),
        lambda r: r.masked_only and not has_noise(r),
        "With enough messages, the server learns the sum of C over all nodes of a sum. If these nodes together have no "
        "more rows than columns, the sum determines all of their rows up to a rotation. max_columns only limits how "
        "many numbers leave this node.",
        left_open=True,
    ),
    DisclosureSentence(
        ("max_epsilon", "max_delta"),
        lambda r: r.max_epsilon is not None,
        "In all runs that one ledger counts, the answers reveal no more about any single row than epsilon "
        "{max_epsilon} at delta {max_delta} allows.",
    ),
    DisclosureSentence(
        ("max_epsilon", "trusted_keys"),
        lambda r: r.max_epsilon is not None and r.trusted_keys is not None,
        "Under masks, this limit holds only as long as the nodes on which this node relies are honest.",
    ),
    DisclosureSentence(
        ("max_epsilon",),
        lambda r: has_noise(r) and r.max_epsilon is None,
        "A server that asks again and again can learn what the noise hides. max_epsilon would limit all runs together.",
        left_open=True,
    ),
    DisclosureSentence(
        ("allow",),
        lambda r: bool(served_row_comparers(r)),
        "Some algorithms that allow names compare rows by design, so a server can learn single rows from them, under "
        "masks too: {compares}. To prevent this, leave them out of allow.",
        left_open=True,
    ),
    DisclosureSentence(
        ("missing",),
        lambda r: r.missing == "local_mean" and not has_noise(r),
        "This node fills missing values with its own means. About missing values, the server learns only what C and "
        "the means tell, which columns have any, and which columns have no value at all.",
    ),
    DisclosureSentence(
        ("missing", "min_rows"),
        lambda r: r.missing == "mean",
        "If {min_rows} or more rows have a missing value in a column, the server can compute the sum of these rows. "
        'missing="local_mean" prevents this.',
        left_open=True,
    ),
    DisclosureSentence(
        ("masked_only",),
        allows_peaks,
        'A run with scale="max_abs" reveals one true entry of each column, the largest one without its sign. Runs with '
        "masks or noise cannot use this scale.",
        left_open=True,
    ),
    DisclosureSentence(
        ("max_groups", "max_dropouts"),
        lambda r: r.limits_groups,
        "In all runs together, this node is in sums over at most {groups} of nodes, with {gone} of a group missing. "
        "Only a member that has left for good, by flower-pca leave, is not counted as missing.",
    ),
    DisclosureSentence(
        ("max_dropouts",),
        lambda r: r.masked_only and not r.limits_groups,
        "The server can learn how large this node's answers are, because it sees whether they keep to the bounds that "
        "it sets for masked sums. max_dropouts limits how often.",
        left_open=True,
    ),
    DisclosureSentence(
        ("max_groups", "max_dropouts"),
        lambda r: r.masked_only and not r.limits_groups,
        "The server can compute this node's own answers as differences of sums with and without this node, or over "
        "other groups. max_groups and max_dropouts limit these sums.",
        left_open=True,
    ),
    DisclosureSentence(
        ("max_messages",), lambda r: r.max_messages is not None, "This node answers at most {messages} in a run."
    ),
    DisclosureSentence(
        ("max_messages_ever",),
        lambda r: r.max_messages_ever is not None,
        "This node answers at most {messages_ever} in all runs together.",
    ),
    DisclosureSentence(
        ("min_rows", "allow_sparse_columns"),
        lambda r: _searches_rare_values(r) and r.max_epsilon is None,
        "No run gets a column in which some rows, but fewer than {min_rows}, have a value, or have another value than "
        "most rows. {exempt}",
    ),
    DisclosureSentence(
        ("min_rows", "allow_sparse_columns"),
        lambda r: _searches_rare_values(r) and r.max_epsilon is None,
        "If a column of codes is a linear function of another one for all but a few rows (fewer than {min_rows}), no "
        "run gets the one whose name comes last. A column of codes has at most {codes} different values. This node "
        "also searches for sums of several such columns, with whole coefficients up to {largest}, but does not find "
        "all of them. With more than {most_codes} columns of codes, it searches for neither.",
    ),
    DisclosureSentence(
        ("allow_sparse_columns",),
        lambda r: r.allow_sparse_columns is True and not has_noise(r),
        "The server can learn about the carriers of rare values, because allow_sparse_columns permits all columns with "
        "such values.",
        left_open=True,
    ),
    DisclosureSentence(
        ("min_change", "on_small_change"),
        lambda r: r.min_change is not None,
        "This node answers from its rows as they were when it first answered, so the server learns nothing about rows "
        "that are added, removed or changed later. If the file of this node differs from these rows, {until}. Batches "
        "of a stream are used as they arrive.",
    ),
    DisclosureSentence(
        ("min_change", "id_column"),
        lambda r: r.min_change is not None and r.id_column is not None,
        "People who come later, by their {id_column}, are added once there are at least {min_change} of them who could "
        "be a table of their own. The server then learns what they tell together, under masks too. A person who gets a "
        "second id counts as a new person.",
    ),
    DisclosureSentence(
        ("max_epsilon",),
        lambda r: r.max_epsilon is not None,
        "This node answers from its rows as they were when it first answered, so the server learns nothing about rows "
        "that are added, removed or changed later.",
    ),
    DisclosureSentence(
        (),
        lambda r: not has_noise(r),
        "If one person has a value far beyond all others in its column, the entries of C for this column are nearly "
        "the row of this person.",
        left_open=True,
    ),
    DisclosureSentence(
        (),
        lambda r: not has_noise(r),
        "If one person differs from all others in a combination with a column of measurements, C reveals the row of "
        "this person. For example, a total is the sum of its parts for all others.",
        left_open=True,
    ),
    DisclosureSentence(
        ("min_rows",),
        lambda r: _searches_rare_values(r) and not has_noise(r),
        "If one person differs from all others in a combination of three or more columns of codes, C reveals the row "
        "of this person unless this node has found the combination. It finds none if the coefficients are not whole "
        "numbers up to {largest}, and few if it has hardly more rows than columns of codes. In a table with more than "
        "{most_codes} columns of codes, the same holds for two columns.",
        left_open=True,
    ),
    DisclosureSentence(
        ("min_rows", "allow_sparse_columns"),
        lambda r: not _searches_rare_values(r) and not has_noise(r),
        "If one person differs from all others in a column, or in a combination of codes, C reveals the row of this "
        "person. This node looks for such columns only if min_rows is above 1 and allow_sparse_columns does not "
        "permit all columns.",
        left_open=True,
    ),
    DisclosureSentence(
        (),
        lambda r: not has_noise(r),
        "For every two columns, C holds the sum of the products of their values. For two codes of 0 and 1, this is how "
        "many people have both. For two measurements, it is the product for a single person if all others lack one of "
        "them.",
        left_open=True,
    ),
    DisclosureSentence(
        ("masked_only",),
        lambda r: r.masked_only and not has_noise(r),
        "If a combination of columns has the same value in all rows of every other node, a sum shows this combination "
        "for this node alone. For example, a total minus its parts is 0 at every other node. Nodes check only single "
        "columns.",
        left_open=True,
    ),
    DisclosureSentence(
        ("masked_only",),
        lambda r: r.masked_only and not has_noise(r),
        "If a run harmonizes sites or looks for components of each site's own, the answers of a node are not linear "
        "in C. From many such sums, with numbers that it chooses, the server can work out the number of rows, the "
        "means and the variances of every single node, and with own components also C of single nodes. To refuse the "
        "second kind, name other algorithms in allow.",
        left_open=True,
    ),
    DisclosureSentence(
        ("data_name", "memory_dir"),
        lambda r: r.keeps_ledger,
        "With another memory_dir, the limits over all runs begin again, because each folder has ledgers of its own. "
        "Within a folder, this node counts in every ledger that knows its rows or its file. With data_name, the ledger "
        "has this name even if the rows and the file change.",
        left_open=True,
    ),
    DisclosureSentence(
        ("min_change",),
        lambda r: not r.keeps_rows,
        "If rows are added, removed or changed, the difference between the answers before and after reveals these "
        "rows, unless noise hides them. With min_change, the node answers from its rows as they were.",
        left_open=True,
    ),
)


_NOTE: Final = (
    "X are this node's rows, centered and scaled as the server says, C is X'X, and Z is any matrix that the server "
    "chooses. Under masks, the server sees only sums of these numbers over nodes. With dp, the rows are clipped and "
    "the numbers have noise."
)
_APP: Final = (
    "The app that comes with a run can read everything that the user of this node can read, and no rule prevents this. "
    "Let only trusted entities start runs."
)


@dataclass(frozen=True)
class Disclosures:
    """What a server can learn from a node.

    Attributes
    ----------
    rules : dict
        The rules that differ from their defaults, with their values as text.
    profile : tuple of str
        The promises of the profile.
    weaker : tuple of str
        What a server can learn because other rules weaken these promises.
    seen : tuple of str
        What the server sees of an answer.
    served : dict
        What a run of each served algorithm can reveal. "any algorithm" names what runs of all algorithms can reveal.
    refused : dict
        The algorithms that the node does not serve, with the reasons.
    lasting : tuple of str
        What all messages together can reveal, and what limits this.
    open : tuple of str
        What these rules do not prevent, and the rules that would prevent it.
    trusted : tuple of str
        What no rule can prevent.
    """

    rules: dict[str, str]
    profile: tuple[str, ...]
    weaker: tuple[str, ...]
    seen: tuple[str, ...]
    served: dict[str, str]
    refused: dict[str, str]
    lasting: tuple[str, ...]
    open: tuple[str, ...]
    trusted: tuple[str, ...]

    def text(self) -> str:
        """Return the page as text."""
        own = ", ".join(f"{name}={value}" for name, value in self.rules.items()) or "all at their defaults"
        blocks = [f"Rules: {own}"]
        for head, lines in (
            ("What the profile promises", self.profile),
            ("Which of these promises other rules weaken", self.weaker),
            ("What the server sees and does not see", self.seen),
            (f"What a run of each algorithm can reveal\n  {_NOTE}", _lines_by_text(self.served)),
            ("Which algorithms this node refuses", _lines_by_text(self.refused)),
            ("What all messages together can reveal", self.lasting),
            ("What these rules do not prevent", self.open),
            ("What you have to trust", self.trusted),
        ):
            if lines:
                blocks.append("\n".join([head, *(f"  - {line}" for line in lines)]))
        return "\n\n".join(blocks) + "\n"


def _lines_by_text(texts_by_name: dict[str, str]) -> tuple[str, ...]:
    """Return one line for each different text. The line begins with the names of all algorithms with this text."""
    alike: dict[str, list[str]] = {}
    for name, words in texts_by_name.items():
        alike.setdefault(words, []).append(name)
    return tuple(f"{', '.join(names)}: {words}" for words, names in alike.items())


def _kinds_in_words(kinds: frozenset[Kind]) -> str:
    """Return a description of these kinds, in the order of `KINDS`. Kinds that are not listed there come last."""
    places = {kind: place for place, kind in enumerate(KINDS)}
    return "; ".join(kind.tells for kind in sorted(kinds, key=lambda kind: places.get(kind, len(KINDS))))


def disclosures_of(rules: Rules) -> Disclosures:
    """Return what a server can learn from a node under these rules."""
    every = allowed_names()
    refused = {name: why for name in every if (why := reason_not_served(rules, name))}
    contents = {name: kinds_of_answers(rules, name) for name in every if name not in refused}
    # What all algorithms reveal, such as the parts of the opening, is listed once for all of them.
    runs = [found for name, found in contents.items() if name in registry.ALGORITHMS]
    common = frozenset.intersection(*runs) if len(runs) > 1 else frozenset()
    beside = {name: found - common if name in registry.ALGORITHMS else found for name, found in contents.items()}
    served = {name: _kinds_in_words(found) or "nothing more" for name, found in beside.items()}
    if common:
        served = {"any algorithm": _kinds_in_words(common), **served}
    lines = [line for line in SEEN + LASTING if line.applies(rules)]
    given = {f.name: getattr(rules, f.name) for f in fields(rules) if getattr(rules, f.name) != f.default}
    return Disclosures(
        rules={name: str(value) for name, value in given.items()},
        profile=promises.promises_of(rules),
        weaker=tuple(promises.weaker_rules(rules).values()),
        seen=tuple(line.words_for(rules) for line in lines if line in SEEN and not line.left_open),
        served=served,
        refused=refused,
        lasting=tuple(line.words_for(rules) for line in lines if line in LASTING and not line.left_open),
        open=tuple(line.words_for(rules) for line in lines if line.left_open),
        trusted=(_APP,),
    )
