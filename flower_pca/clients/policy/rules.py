"""The rules of a node. This module documents and checks them.

Rules come as an object (`PCAClient(data, rules=Rules(min_rows=50))`), as keywords (`client_app(load, min_rows=50)`), or
as keys of a node-config (`min-rows=50`). All three become one immutable `Rules`, and the module
`flower_pca.clients.policy.policy` applies these rules to messages.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flower_pca import registry
from flower_pca.base import checks
from flower_pca.base.errors import ConfigError, marked_private
from flower_pca.base.labels import clean_name
from flower_pca.base.linalg import Array
from flower_pca.base.options import option
from flower_pca.base.shown import brief, shown
from flower_pca.clients.policy.profiles import LOT, rules_of_profile
from flower_pca.dp.gaussian import noise_of
from flower_pca.layers.noise import NoiseFloor
from flower_pca.rows.covariates import SITE

if TYPE_CHECKING:
    from flower_pca.masking.identity import NodeIdentity

ANY: Final = "any"  # the value of split_columns that allows every scale, and runs over rows as well
# The smallest valid value of each rule that is a whole number
_LEAST: Final = {
    "min_rows": 1,
    "min_peers": 1,
    "record_days": 1,
    "max_messages": 1,
    "max_messages_ever": 1,
    "max_columns": 1,
    "max_groups": 1,
    "max_colluders": 0,
    "max_dropouts": 0,
}
_NEEDED: Final = ("min_rows", "min_peers", "max_colluders", "record_days")  # whole numbers that cannot be None
_CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {
    "on_small_change": ("answer", "refuse"),
    "share_local": (True, False),
    "masked_only": (True, False),
    "single_masks": (True, False),
    "share_names": (True, False),
    "allow_noise": (True, False),
    "split_columns": (False, True, "std", "max_abs", "genotype", ANY),
    "answers": ("fixed", "rows"),
}
_UNSIGNED: Final = (
    "This node has masked_only without trusted_keys. A server can then take part in sums as another node, and a "
    "single invented node is enough to unmask what this node sends. Set trusted_keys to prevent this."
)
# The pattern of a valid data_name, which becomes part of file names
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
TELLS: Final = "tells"  # In a rule's metadata, this is the key of the text about what the server sees under the rule.
_OF_RUNS: Final = ("categorical",)  # the rules that simulated nodes take from the run-config
_COVARIATES: Final = ("explain", "adjust", "keep")  # the settings of a run that name covariates
_NEAR: Final = 0.8  # the similarity (by difflib) above which a name counts as a misspelling of another name


def allowed_names() -> tuple[str, ...]:
    """Return all names that `allow` may contain.

    They are algorithms, trackers, extra stages such as monitoring, and standardize, which only scales columns.
    """
    return tuple(chain(registry.ALGORITHMS, registry.TRACKERS, registry.EXTRA_STAGES, registry.OPENING_ONLY))


def rules_of_simulation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of simulated nodes for a run-config, as keywords of `Rules`.

    They allow everything, because the user of a simulation has all rows anyway.
    """
    free: dict[str, Any] = {"allow": allowed_names(), "answers": "rows", "missing": "mean", "split_columns": "any"}
    free |= {name: str(config[name]) for name in _OF_RUNS if config.get(name)}
    named = ",".join(str(config[name]) for name in _COVARIATES if config.get(name))
    if named:
        free["covariates"] = named
    return {**free, "noise_seed": int(config.get("seed", 0) or 0)}


class RowFreeAlgorithms(Set[str]):
    """A set of the names of all algorithms that do not compare rows. A look-up imports only the requested algorithm."""

    def __contains__(self, name: object) -> bool:
        return name in allowed_names() and not registry.STAGES[str(name)].by_row

    def __iter__(self) -> Iterator[str]:
        return (name for name in allowed_names() if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> frozenset[Any]:
        return frozenset(it)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a node: what it allows, and where it keeps its files.

    Parameters
    ----------
    allow : collection of str or None, default=None
        Names of the algorithms that the node serves. By default, the node serves every algorithm that does not compare
        rows. consensus_rpca, dcf_pca, triple_pca, the trackers, and "monitor" (the counts of rows for monitor=True)
        compare rows, so the node serves them only if they are named here.
    min_rows : int, default=1
        The smallest number of rows with which the node answers. If a column has missing values, but fewer than this
        number, only the node itself may choose what replaces them. With max_epsilon, the node also answers with fewer
        rows, and its log has a warning.
    allow_sparse_columns : bool, str or collection of str, default=False
        Columns for which the node answers although fewer than min_rows rows have a value, or have another value than
        most rows: their names, separated by commas, or True for all columns. The node refuses requests for all other
        columns in which so few rows differ. The rule does not apply to streams. With max_epsilon, no column is refused.
    categorical : str or collection of str, default=()
        Names of text columns, separated by commas. The node may send the levels of these columns, as names of columns
        such as ward=surgery. It does not send a level that fewer than min_rows rows have. Rows with a rare level count
        as "other", or as the most common level if all rare levels together have fewer than min_rows rows. The rule
        needs share_names. It is not allowed with max_epsilon, because single rows decide whether a level is sent.
    covariates : str or collection of str, default=()
        Names of columns, separated by commas. Runs may use these columns to explain components, or remove the effect of
        these columns from the features. The node then sends how the columns vary with components, or with every
        feature, as sums over its rows, and nothing about a single row. For a text column, give the name of the column,
        not of its levels. A level that fewer than min_rows rows have counts as "other".
    min_change : int or None, default=None
        The smallest number of new people that the node adds to its rows at once. At least min_rows. The node keeps a
        copy of the rows from which it has answered, next to its ledger, and continues to answer from this copy even if
        its file changes. With id_column, new people are added to the copy as soon as there are at least min_change of
        them and the node would also answer from a table with only these people. Nobody leaves the copy, no row in it
        changes, and no id is added twice. Without id_column, nobody is added. The operator can release the present
        rows with flower-pca forget. The rule does not apply to streams, whose batches are used as they arrive.
    id_column : str or None, default=None
        The name of the column in the node's file that identifies a person, for min_change. An id must always mean the
        same person, and a person must have only one id.
    on_small_change : str, default="answer"
        What the node does while its file differs from the copy: "answer" from the copy, or "refuse". With max_epsilon
        it always answers.
    memory_dir : str or path or None, default=None
        A folder for the node's memory, which survives restarts. By default, the memory is kept in Flower's context.
    data_name : str or None, default=None
        A name for the data. Under this name, the ledger counts what has left the node over all runs. Nodes of one
        machine with the same name share a ledger. By default, the ledger is named after the partition-id, and a node
        counts its answers in every such ledger of its folder that knows the same rows or the same file.
    run_record : bool, str or path or None, default=None
        A folder for the record of runs, or False for no record. The record has a line for each run that asked the node:
        the time, the run's number in Flower, what the server says about the run, the bytes sent, and how it ended. By
        default, it is in memory_dir, or next to the ledger if the node keeps one.
    record_days : int, default=1096
        The number of days for which the record is kept. After that, it is deleted month by month.
    output_dir : str or path or None, default=None
        A folder for the local result of the node, if the algorithm has local results: the file
        flower_pca-local-KEY.npz, where KEY is the partition-id or node id. The file never goes to the server. For a
        Stream, flower_pca-local-KEY is a folder with an npz file for every step.
    share_local : bool, default=False
        Whether the node may send its local components to the server. Personalized algorithms request them to start
        (init="upload" or "qu") or to compare nodes (collect=True). In runs without masks, the rule also covers the
        answers from which theta is estimated, because these answers lie in the space of the node's local components.
        Without the rule, these answers are zeros. The rule does not hide local components from a server that computes
        them from other answers. Masks do.
    min_noise : float or None, default=None
        The smallest standard deviation of the noise on every answer, as a multiple of the squared clip. The node then
        answers only runs with dp that ask for at least this noise. Under masks it is the noise of the sum.
    max_clip : float or None, default=None
        The largest norm to which a run with dp may clip its rows. The node then answers no other runs.
    masked_only : bool, default=False
        Whether the node answers only under masks, and only for columns that at least min_peers other nodes of a sum
        have measured, too. Without the second condition, a sum over a column that is empty or constant at all other
        nodes would show this node's values.
    single_masks : bool, default=False
        Whether the node takes part in masked sums without self-masks, if the server asks for them.
    sign_key : str or path or None, default=None
        The node's private key, in OpenSSH or PEM format: the file that its SuperNode uses. The node signs its keys for
        masked sums with it.
    trusted_keys : str or path or None, default=None
        A file with the public keys of the federation's nodes, in OpenSSH format, one per line, or a folder of .pub
        files. The node then takes part in masked sums only with nodes that have signed with one of these keys. Do not
        take this file from the server.
    max_messages : int or None, default=None
        The largest number of messages that the node answers in a run of Flower, including the set-up of masks.
    max_messages_ever : int or None, default=None
        The largest number of messages that the node answers over all runs, even if the rows change. Refused messages
        count, too.
    max_columns : int or None, default=None
        The largest number of columns of d numbers that leave the node over all runs, with or without masks, even if the
        rows change. An answer with m numbers counts as m / d columns, rounded up. Single whole numbers, such as the
        number of rows, do not count. The rule limits how many numbers leave the node, not what can be computed from
        these numbers. To hide C_i, use masks or noise.
    max_epsilon : float or None, default=None
        The privacy budget for all answers with noise over all runs, even if the rows change, and whatever budget a run
        names. The node then answers only runs with dp. The rule needs max_delta. Nothing that the node reads from its
        rows decides whether it answers, about which columns, or in which words. It answers from a copy of its rows as
        they were at the first answer. A column with text counts as numeric, and a row with a cell that is not a number
        counts as a row of zeros.
    max_delta : float or None, default=None
        The delta of the privacy budget: max_epsilon holds at this delta.
    max_colluders : int, default=0
        Under masks, the number of other nodes that may collude with the server. The shares of the noise are made so
        large that the noise suffices even if these nodes add none.
    min_peers : int, default=1
        The smallest number of other nodes in a masked sum, whatever threshold the server names.
    max_groups : int or None, default=None
        The largest number of different groups of nodes in which the rows are summed, over all runs. Sums over two
        different groups reveal their difference, for example the answer of one additional member. The rule needs
        trusted_keys, by which the node recognizes other nodes. By default 1 if max_dropouts is given.
    max_dropouts : int or None, default=None
        The largest number of members of a group that may be missing from its sums, over all sums, because each missing
        member reveals a difference of sums. The rule also limits how often the node may report that its own answer
        exceeds the bound of a sum, because such a report reveals the size of the answer. By default 0 if max_groups is
        given.
    share_names : bool, default=True
        Whether the node sends the names of its columns and its own name (`name` in the node-config) to the server. If
        not, the node sends the number of columns and a digest of their sorted names, so that the server can compare
        nodes. With the digest, the server can confirm a guess of all names.
    answers : str, default="fixed"
        What answers are computed from. "fixed" uses statistics of the rows that were measured before the first
        message, so that a server cannot make rounding errors reveal single rows. The node stores the statistics in
        memory_dir. "rows" uses products with the rows themselves, for a trusted server.
    split_columns : bool or str, default=False
        Whether the node takes part only in runs whose parties hold different columns of the same people: True for
        unscaled columns, "std", "max_abs" or "genotype" for columns scaled in this way. The server and all parties then
        see each person's scores, and without masks the server sees products with X_p X_p'. "any" lets the run choose
        the scale, and also serves runs over rows. A server can then compute all rows.
    missing : str, default="local_mean"
        What replaces the node's missing values, in runs that allow missing values. "local_mean" is the mean of the
        column at this node. "mean" also lets the run choose the mean over all nodes. The server can then compute the
        sum of the rows with a missing value in a column.
    gap_values : float, mapping, str or None, default=None
        Constants that replace missing values in runs with noise: a number for all columns, or a number for each column
        by name, in a node-config such as "age=50,weight=70". They must not be computed from the rows, because one row
        would then change all rows with a missing value, which the noise does not hide. Without constants, a node with
        missing values refuses noise. With max_epsilon, a row with a missing value counts as a row of zeros.
    noise_seed : int or None, default=None
        A seed of the noise under masks, for simulations. Whoever knows the seed can remove the noise.
    allow_noise : bool, default=True
        Whether the node answers runs with noise. In such runs, each row is clipped before the answer is computed.
        Without max_epsilon, a server can average the noise away over many runs.
    profile : str
        The named set of rules that these rules extend: "open", "masked" or "private" (see
        `flower_pca.clients.policy.profiles`). Pass it as a keyword, as in `PCAClient(data, profile="private")`, or to
        `Rules.with_changes`.

    Raises
    ------
    ConfigError
        If a rule is invalid, or cannot be combined with the other rules.

    Examples
    --------
    >>> from flower_pca.clients import Rules
    >>> rules = Rules(allow=("krylov", "covariance"), min_rows=50)
    >>> rules.min_rows
    50
    """

    allow: Collection[str] | None = None
    min_rows: int = 1
    allow_sparse_columns: bool | str | Collection[str] = False
    categorical: str | Collection[str] = field(
        default=(),
        metadata={TELLS: "the names of levels that at least {min_rows} rows have, in these columns of words"},
    )
    covariates: str | Collection[str] = field(
        default=(), metadata={TELLS: "sums over rows that say how columns and components change with these columns"}
    )
    min_change: int | None = None
    id_column: str | None = None
    on_small_change: str = "answer"
    memory_dir: str | os.PathLike[str] | None = None
    data_name: str | None = None
    run_record: bool | str | os.PathLike[str] | None = None
    record_days: int = 1096
    output_dir: str | os.PathLike[str] | None = None
    share_local: bool = False
    min_noise: float | None = None
    max_clip: float | None = None
    masked_only: bool = False
    single_masks: bool = False
    sign_key: str | os.PathLike[str] | None = None
    trusted_keys: str | os.PathLike[str] | None = None
    max_messages: int | None = None
    max_messages_ever: int | None = None
    max_columns: int | None = None
    max_epsilon: float | None = None
    max_delta: float | None = None
    max_colluders: int = 0
    min_peers: int = 1
    max_groups: int | None = None
    max_dropouts: int | None = None
    share_names: bool = True
    split_columns: bool | str = False
    answers: str = "fixed"
    missing: str = "local_mean"
    gap_values: float | Mapping[str, float] | str | None = None
    noise_seed: int | None = None
    allow_noise: bool = True
    # The profile supplies the rules that the keywords leave out.
    profile: str = field(default="", init=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        checks.use_python_numbers(self)
        listed = allowed_names()
        for name in [] if self.allow is None else sorted(self.served_algorithms):
            if name not in listed:
                known = ", ".join(listed)
                raise ConfigError(
                    f"allow names {shown(name)}, but there is no such algorithm. The algorithms are {known}. "
                    f"{checks.did_you_mean(name, listed)}",
                    setting="allow",
                )
        for name, least in _LEAST.items():
            if getattr(self, name) is not None or name in _NEEDED:
                checks.integer(name, getattr(self, name), least=least)
        checks.choices(self, _CHOICES)
        checks.choice("missing of a node", self.missing, ("local_mean", "mean"))
        if self.data_name is not None and not _NAME.fullmatch(str(self.data_name)):
            raise ConfigError(
                "data_name must have at most 64 letters, digits, hyphens and underscores, for example "
                f'"cohort-2024". It is {shown(self.data_name)}.',
                setting="data_name",
            )
        if self.noise_seed is not None:
            checks.integer("noise_seed", self.noise_seed, most=2**62)
        self._check_budget()
        self._check_together()
        if self.masked_only and self.trusted_keys is None:
            logging.getLogger("flwr").warning(_UNSIGNED)

    def _check_together(self) -> None:
        """Refuse rules that do not work together, and constants for missing values that are not numbers."""
        if self.max_epsilon is not None and self.categorical:
            raise ConfigError(
                f"categorical={self.categorical!r} cannot be used together with max_epsilon, because single rows "
                "decide which levels the node names. Leave categorical out."
            )
        if self.max_epsilon is not None and self.covariates:
            raise ConfigError(
                f"covariates={self.covariates!r} cannot be used together with max_epsilon, because runs with noise "
                "support no covariates. Leave covariates out."
            )
        if self.max_epsilon is not None and self.split_columns:
            raise ConfigError(
                f"split_columns={self.split_columns} cannot be used together with max_epsilon, because runs over "
                "columns reveal the scores of each person without noise. Leave split_columns or max_epsilon out."
            )
        if self.max_epsilon is not None and self.min_change is not None:
            raise ConfigError(
                f"min_change={self.min_change} has no effect together with max_epsilon, which already keeps the rows "
                "as they were when the node first answered. Leave min_change out."
            )
        if self.id_column is not None and self.min_change is None:
            raise ConfigError(
                f"id_column={shown(self.id_column)} has no effect without min_change. Set min_change=20, or leave "
                "id_column out."
            )
        if self.min_change is not None:
            checks.integer("min_change", self.min_change, least=self.min_rows)
        if self.min_change is not None and self.split_columns:
            raise ConfigError(
                f"min_change cannot be used together with split_columns={self.split_columns}, because runs over "
                "columns reveal the scores of each person. Leave min_change or split_columns out.",
                setting="min_change",
            )
        if self.categorical and not self.share_names:
            raise ConfigError(
                f"{option('categorical')} of a node ({shown(self.categorical)}) reveals names of columns, but "
                "share_names is false. Leave categorical out, or set share_names.",
                setting="categorical",
            )
        if self.limits_groups and self.trusted_keys is None:
            raise ConfigError(
                "max_groups and max_dropouts need trusted_keys. Without trusted_keys, a server can invent the nodes of "
                "a group. Set trusted_keys to a file with the public keys of the other nodes."
            )
        _ = self._fill_constants
        if self.floor is not None and not self.allow_noise:
            raise ConfigError(
                "allow_noise is false, but min_noise, max_clip or max_epsilon requires noise. Leave allow_noise out, "
                "or leave out the rules that require noise.",
                setting="allow_noise",
            )

    def _check_budget(self) -> None:
        if self.max_epsilon is None and self.max_delta is None:
            return
        if self.max_epsilon is None or self.max_delta is None:
            raise ConfigError(
                "max_epsilon and max_delta belong together, but only one of them is given: "
                f"max_epsilon={shown(self.max_epsilon)}, max_delta={shown(self.max_delta)}. For example, set "
                "max_epsilon=1.0 and max_delta=1e-6."
            )
        checks.number("max_epsilon", self.max_epsilon, least=1e-9)
        checks.number("max_delta", self.max_delta, least=1e-30, most=0.5)

    @classmethod
    def with_changes(cls, rules: Rules | None, changes: Mapping[str, Any]) -> Rules:
        """Return `rules`, or the default rules if it is None, with the rules in `changes` replaced."""
        own = rules or cls()
        if not changes:
            return own  # A copy of the rules would have to read the key files again.
        checks.parameters("A node", changes, [f.name for f in fields(cls)])
        settings = {key: value for key, value in changes.items() if key != "profile"}
        name = changes.get("profile", own.profile)
        if "profile" in changes:
            of_own = {f.name: getattr(own, f.name) for f in fields(cls) if f.init}
            # A rule that differs from its default was set explicitly, so it overrides the rule of the profile.
            changed = {key: value for key, value in of_own.items() if value != getattr(cls, key)}
            settings = rules_of_profile(str(name), {**changed, **settings})
        found = replace(own, **settings)
        if name:
            # The rules are frozen, and `replace` accepts only fields that are parameters of __init__.
            object.__setattr__(found, "profile", str(name))
            found._check_profile()
        return found

    def _check_profile(self) -> None:
        """Refuse rules that break the promises of their profile."""
        if self.profile == "masked" and self.trusted_keys is None:
            raise ConfigError(
                "The profile masked needs trusted_keys. Without trusted_keys, a server can take part as another node "
                "and unmask what this node sends. Set trusted_keys to a file with the public keys of the other nodes."
            )
        for rule in ("min_rows", "min_change") if self.profile == "masked" else ():
            checks.integer(f"{rule} in the profile {self.profile}", getattr(self, rule), least=LOT)

    @classmethod
    def of_node_config(cls, config: Mapping[str, Any]) -> Rules:
        """Return the rules in a node-config. Their names have hyphens there, and commas separate the names in `allow`.

        Raises
        ------
        ConfigError
            If a key nearly matches the name of a rule. Otherwise, the operator could believe that the misspelled rule
            applies.
        """
        names = {f.name.replace("_", "-"): f.name for f in fields(cls)}
        _require_spelling(tuple(config), tuple(names))
        given = {name: config[key] for key, name in names.items() if key in config}
        if "allow" in given:
            named = str(given["allow"]).split(",")
            given["allow"] = [name.strip() for name in named if name.strip()]
        return cls.with_changes(None, given)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The text columns whose levels the node may send."""
        if not self.categorical:
            return ()
        from flower_pca.names.levels import read_levels

        return tuple(name for name, _ in read_levels(self.categorical) or ())

    @cached_property
    def covariate_names(self) -> tuple[str, ...]:
        """The columns that runs may use as covariates. A level such as sex=M counts as its column, sex."""
        from flower_pca.names.levels import source_of

        given = self.covariates.split(",") if isinstance(self.covariates, str) else self.covariates
        names = [clean_name(name) for name in given]
        return tuple(dict.fromkeys(source_of(name) or name for name in names if name and name != SITE))

    @property
    def served_algorithms(self) -> Set[str]:
        """The names of the algorithms that the node serves."""
        if self.allow is None:
            return RowFreeAlgorithms()
        return frozenset([self.allow] if isinstance(self.allow, str) else self.allow)

    @cached_property
    def _fill_constants(self) -> float | dict[str, float] | None:
        """The constant for missing values, the constants by column name, or None without the rule gap_values."""
        given = self.gap_values
        if given is None:
            return None
        try:
            if isinstance(given, str) and "=" in given:
                pairs = (pair.rpartition("=") for pair in given.split(","))
                given = {name.strip(): float(value) for name, _, value in pairs}
            numbers = given if isinstance(given, Mapping) else float(given)
        except (TypeError, ValueError):
            numbers = np.nan
        values = list(numbers.values()) if isinstance(numbers, Mapping) else numbers
        if not np.isfinite(values).all():
            raise ConfigError(
                f"gap_values must be a number, or a number for each column by name, not {shown(self.gap_values)}. "
                'Write "age=50,weight=70", for example.',
                setting="gap_values",
            )
        if isinstance(numbers, float):
            return numbers
        return dict(numbers)

    def gap_constants(self, names: Sequence[str] | None, d: int) -> Array | None:
        """Return the constants for missing values of d columns, or None without the rule gap_values.

        The entry of a column without a constant is NaN.
        """
        numbers = self._fill_constants
        if numbers is None:
            return None
        if isinstance(numbers, float):
            return np.full(d, numbers)
        columns = names or [""] * d
        return np.array([numbers.get(name, np.nan) for name in columns])

    @cached_property
    def floor(self) -> NoiseFloor | None:
        """The minimum noise and maximum clip that the node requires, or None if it also answers without noise."""
        if self.min_noise is None and self.max_clip is None and self.max_epsilon is None:
            return None
        least = self.min_noise
        if least is None and self.max_epsilon is not None:
            least = 0.0
        return NoiseFloor(least, self.max_clip)

    @property
    def total_budget(self) -> float | None:
        """The privacy budget for all answers together, as a sum of mu^2, or None for no limit."""
        if self.max_epsilon is None or self.max_delta is None:
            return None
        return noise_of(self.max_epsilon, self.max_delta) ** 2

    @cached_property
    def limits_groups(self) -> bool:
        """Whether a rule limits the groups of nodes with which the node's answers are summed."""
        return self.max_groups is not None or self.max_dropouts is not None

    @property
    def group_limits(self) -> tuple[int, int] | None:
        """The maximum number of groups, and the maximum number of members of a group that may drop out.

        It is None if no rule limits groups.
        """
        if not self.limits_groups:
            return None
        return self.max_groups or 1, self.max_dropouts or 0

    @cached_property
    def keeps_rows(self) -> bool:
        """Whether the node answers from a copy of its rows, even if its file changes."""
        return self.min_change is not None or self.max_epsilon is not None

    @cached_property
    def keeps_ledger(self) -> bool:
        """Whether a rule covers all runs, so that the node must record its answers."""
        lasting = (self.max_messages_ever, self.max_columns, self.max_epsilon)
        return self.limits_groups or lasting != (None, None, None)

    @property
    def hides_reasons(self) -> bool:
        """Whether the node's refusals must not report what was found in its rows."""
        return self.masked_only or self.floor is not None

    @cached_property
    def identity(self) -> NodeIdentity | None:
        """The node's signing key and the keys that it trusts, or None. The files are read once, at the first use."""
        if self.sign_key is None and self.trusted_keys is None:
            return None
        # The import is here because the module needs the package cryptography, which other clients do not need.
        from flower_pca.masking.identity import NodeIdentity

        with marked_private():
            return NodeIdentity.load(self.sign_key, self.trusted_keys)


@lru_cache
def _require_spelling(keys: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Refuse node-config keys that nearly match a rule. The check is cached, as simulated nodes have the same keys."""
    for key in keys:
        # Flower reads min-rows below the heading [node] of a .toml file as node.min-rows.
        name = key.rpartition(".")[2].replace("_", "-").lower()
        near = difflib.get_close_matches(name, names, n=1, cutoff=_NEAR)
        if near and key not in names:
            raise ConfigError(f"The node-config has {key}, which is not a rule. Did you mean {near[0]}?")
