"""PCAClient: the node's side of every algorithm, as a Flower NumPyClient with its own rules.

Every message is handled in the same steps, whatever its stage. First, the rules of the node admit the
message. Then the node reads its rows and its memory of the run, and the stage's client half computes the
answer. Finally, the node removes what it does not share from the answer, checks the rest against everything
that it has sent before, and saves its memory. See `_answer`.

The module also applies the node's rules on what a node reveals about its columns, and on which columns a run
may request by name.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from flwr.app import Context

from flower_pca import client_half, registry, wire
from flower_pca.base import checks, files, labels
from flower_pca.base.errors import ConfigError, ProtocolError, marked_private
from flower_pca.base.linalg import Array
from flower_pca.clients import parties
from flower_pca.clients.numpy_client import NumPyClient
from flower_pca.clients.policy import limits, noised, promises, small_cells
from flower_pca.clients.policy.policy import Policy
from flower_pca.clients.policy.refusals import OPERATOR, RefusalError, refusal_reply, translating_errors
from flower_pca.clients.policy.rules import ANY, Rules
from flower_pca.clients.storage import elsewhere, folders, marks
from flower_pca.clients.storage.folders import FileStore, RunMemory, StateStore
from flower_pca.clients.storage.ledger import Account
from flower_pca.clients.storage.record import RunRecord
from flower_pca.clients.storage.versions import ReleasedRows
from flower_pca.core.layer import ClientIdentity
from flower_pca.core.stage import Arrays
from flower_pca.hints import faults
from flower_pca.hints.identifiers import find_identifiers, hints_of_identifiers
from flower_pca.hints.look import hints_of_first_lines
from flower_pca.layers import NOISE
from flower_pca.masking import messages
from flower_pca.masking.dither import DitherSource, seeded_dither, system_dither
from flower_pca.masking.messages import SpentError
from flower_pca.names import levels
from flower_pca.names.columns import enumeration, mismatch_of_subset, mismatch_without_names, missing_columns
from flower_pca.names.table import Table
from flower_pca.rows.adjusted import SITE_SCALE, hints_of_constant_columns, local_adjustment
from flower_pca.rows.covariates import Covariates
from flower_pca.rows.fixed import FixedData
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.vertical.stages import BOTH
from flower_pca.wire import records

# Stages whose run may be split by columns. Under masks, the request does not say which stage it carries.
_MAY_SPLIT_COLUMNS: Final = frozenset((*BOTH, messages.STAGE))
# The name of the record in a node's state that holds a digest of the rows at the start of each run
_BEGAN: Final = "flower_pca.rows"
_RUNS: Final = 16  # the maximum number of runs in this record; older runs are removed


def node_rows(data: Any, rules: Rules) -> LocalData | Stream:
    """Return a node's rows without the path and the text cells of their file, because these must not leave the node."""
    if isinstance(data, LocalData | Stream):
        return data
    rows = Table.of(data, who=checks.NODE)
    for hint in hints_of_first_lines(rows.headerless):
        logging.getLogger("flwr").warning("Of this node's rows: %s", hint)
    # A memory-mapped numpy array stores the name of its file.
    source = rows.source or getattr(rows.values, "filename", None)
    place = marks.digest_of_path(source) if source else 0
    if rules.id_column is not None:
        indexed = getattr(getattr(data, "index", None), "name", None) == rules.id_column
        rows = with_id_column(rows, rules.id_column, from_index=indexed)
    if rules.max_epsilon is not None:
        rows = noised.usable_table(rows, rules)
    words = (*rules.text_columns, *(name for name in rules.covariate_names if name in rows.texts))
    if words:
        rows = levels.code_columns(rows, tuple(dict.fromkeys(words)), least=rules.min_rows, who=checks.NODE)
    rows = rows.quiet()
    # NaN is accepted here, because each message decides whether missing values are allowed.
    made = LocalData(
        replace(rows, site=rows.site if rules.share_names else ""), who=checks.NODE, missing=True, empty=True
    )
    made.measured.cached(marks.PLACE, lambda: place)
    return made


def with_id_column(rows: Table, column: str, *, from_index: bool = False) -> Table:
    """Return the rows with the values of `column` as ids. `column` is a column of the table, or the table's index.

    Raises
    ------
    ConfigError
        If the rows have no such column.
    """
    cells = rows.texts.get(column)
    if cells is None and rows.names is not None and column in rows.names and isinstance(rows.values, np.ndarray):
        cells = rows.values[:, rows.names.index(column)]
    if cells is None and rows.ids is not None and (rows.source or from_index):
        return rows
    if cells is None:
        with marked_private():
            raise ConfigError(
                f"The rows of this node have no column {column!r}, which its rule id_column names. Set id_column to "
                "a column of its file."
            )
    words = {name: said for name, said in rows.words.items() if name != column}
    found = replace(rows, words=words, ids=tuple(cells.tolist()))
    if rows.names is None or column not in rows.names:
        return found
    rest = [i for i, name in enumerate(rows.names) if name != column]
    return replace(found, values=rows.values[:, rest], names=tuple(rows.names[i] for i in rest))


def log_hints(data: LocalData | Stream, loaded: Any) -> None:
    """Log which columns look like row numbers, and which faults the file has. These hints never leave the node.

    Parameters
    ----------
    data : LocalData or Stream
        The node's rows, as `node_rows` returns them.
    loaded
        The rows as they were loaded. They still have their line numbers in the file.
    """
    if not isinstance(data, LocalData):
        return
    if not data.n:
        logging.getLogger("flwr").warning(
            "This node has no rows. A run with masks counts it as zeros, and its result does not name the node. A run "
            "without masks leaves the node out. If the node should have rows, check its file."
        )
        return
    said = hints_of_identifiers(find_identifiers([data], data.names), data.names)
    whole = loaded if isinstance(loaded, LocalData) else LocalData(loaded, who=checks.NODE, missing=True)
    for hint in (*said, *faults.find_hints([whole], most=faults.CHEAP)):
        logging.getLogger("flwr").warning("Of this node's rows: %s", hint)


def select_columns(data: LocalData | Stream, request: wire.ServerRequest, rules: Rules) -> LocalData | Stream:
    """Return the node's data with only the columns that a message names, or with all columns if it names none.

    If the message names no columns, all columns must be numeric. In a run over columns, the result has the columns
    as rows.

    Raises
    ------
    RefusalError
        If a column is missing, contains text, or may not be used according to the node's rules.
    ProtocolError
        If the message does not fit a run over columns.
    """
    names, split = request.frame.names, request.frame.split
    if split is not None or rules.split_columns or request.stage in _MAY_SPLIT_COLUMNS:
        parties.check_request(request, rules)
    if isinstance(data, Stream):
        data.widest = limits.width_limit_for_stream(request)
        return rows_of_run(data.select(names, one_by_one=rules.share_names), request)
    if (beside := request.frame.covariates) is not None and beside.names:
        _require_allowed(beside, rules)
        names = (*(names or beside.features_of(data.names or ())), *beside.names)
    if names is None:
        if data.table.words and not rules.share_names:
            raise RefusalError(
                f"{labels.count(len(data.table.words), 'column')} of this node "
                f"{'contains' if len(data.table.words) == 1 else 'contain'} text, which a PCA cannot use. Name the "
                "columns of the run, or ask the node's operator."
            )
        return rows_of_run(data.select(None), request)
    if data.names is None:
        raise mismatch_without_names(checks.NODE, data.d).error(
            RefusalError, "Name the columns at all nodes, or at none."
        )
    # If a node that hides its names answered for some columns only, every answer or refusal would tell the server
    # whether it has guessed a name.
    if not rules.share_names and (some := mismatch_of_subset(checks.NODE, names, data.names)):
        raise some.error(RefusalError, "Name all of them, or none, or ask the node's operator.")
    if texts := [name for name in names if name in data.table.words]:
        raise RefusalError(
            f"This node has text in column {enumeration(texts)}, but a PCA needs numbers. Name other columns."
        )
    if absent := missing_columns(checks.NODE, _without_text_columns(data, names), data.names):
        raise absent.error(RefusalError, "Ask the node's operator, or name other columns.")
    return data.arrange(names)


def _require_allowed(covariates: Covariates, rules: Rules) -> None:
    """Refuse covariates that the node's rules do not name."""
    allowed = {*rules.covariate_names}
    if ANY in allowed:
        return
    if unnamed := [name for name in covariates.names if (levels.source_of(name) or name) not in allowed]:
        raise RefusalError(
            f"This node does not let a run use {enumeration(unnamed)} as a covariate, because its rule covariates does "
            f"not name it. {OPERATOR}"
        )


def _without_text_columns(data: LocalData, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names without the node's coded text columns and without the columns made from them."""
    if not data.table.coded:
        return names
    own = {*data.table.coded}
    return tuple(name for name in names if not {name, levels.source_of(name)} & own)


def rows_of_run(data: LocalData | Stream, request: wire.ServerRequest) -> LocalData | Stream:
    """Return the node's rows. If the parties of a run hold different columns, return its columns as rows instead."""
    if request.frame.split is None:
        return data
    return parties.rows_or_columns(data, request)


def description_of_node(data: LocalData | Stream, request: wire.ServerRequest, rules: Rules, site: str) -> wire.Config:
    """Return the entries that a node adds to an answer: its own name, and a description of its columns.

    The node sends names only if its rules share them, and names of columns only if the message requests them.
    """
    wanted = request.frame.names
    heading = data.heading
    if isinstance(data, LocalData) and request.frame.covariates is not None:
        wanted = wanted or request.frame.covariates.features_of(data.names or ())
    if isinstance(data, LocalData) and wanted:
        heading = data.arrange(wanted).heading
    if heading is not None and not (rules.share_names and request.asks_names):
        heading = heading.without_names()
    return {wire.SITE: site, **({} if heading is None else heading.to_plain())}


class PCAClient(NumPyClient):
    """A client that answers the strategies of `flower_pca.strategies` from rows that never leave the node.

    Parameters
    ----------
    data
        The node's rows: an array (dense, scipy sparse or memory-mapped), or a LocalData, or for trackers a Stream. A
        `client_fn` makes a client for every message. If all of these clients get the same LocalData, each process
        computes the statistics of the rows only once.
    context : Context or None, default=None
        The node's Flower context. Algorithms whose clients keep a state between rounds, such as FAPS, store it there.
        Without a context, the client refuses these algorithms.
    rules : Rules or None, default=None
        What the node allows, and where it stores its files.
    **keywords
        Individual rules, which replace the same rules in `rules`. See `Rules`.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr.clientapp import ClientApp
    >>> from flower_pca.clients import PCAClient
    >>> rows = np.random.default_rng(0).standard_normal((60, 6))
    >>> app = ClientApp(client_fn=lambda context: PCAClient(rows, context=context).to_client())
    """

    # The algorithms that the class is restricted to. An empty tuple restricts nothing.
    algorithms: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, data: Any, *, context: Context | None = None, rules: Rules | None = None, **keywords: Any
    ) -> None:
        self._rules = Rules.with_changes(rules, keywords)
        # Both the class and the rules may restrict the algorithms.
        named, allowed = frozenset(self.algorithms), self._rules.served_algorithms
        self._served = named or allowed
        if named and self._rules.allow is not None:
            self._served = allowed & (named | set(registry.EXTRA_STAGES))
        _ = self._rules.identity  # This loads the key files, so that an unusable file is refused at once.
        if self._rules.profile:
            promises.log_profile(self._rules, context)
        self._lots = ReleasedRows(data)
        if isinstance(data, Stream):
            if self._rules.max_epsilon is not None:
                raise ConfigError(
                    "max_epsilon needs rows that do not change, but this client serves a Stream. Leave max_epsilon "
                    "out, or serve a fixed table.",
                    setting="max_epsilon",
                )
            data.min_rows = max(data.min_rows, self._rules.min_rows)
        for name in ("memory_dir", "output_dir"):
            if getattr(self._rules, name) is not None and context is None:
                raise ConfigError(
                    f"{name} needs the node's context. Write PCAClient(data, context=context, {name}=...).",
                    setting=name,
                )
        self._set_context(context)

    def in_context(self, context: Context) -> PCAClient:
        """Return a copy of this client for another context of its node. The rules are not checked again."""
        client = copy.copy(self)
        client._set_context(context)
        return client

    def fit(self, parameters: list[Array], config: wire.Config) -> tuple[list[Array], int, wire.Config]:
        """Return the answer to a train message from a strategy, or a refusal."""
        try:
            request = wire.read_request(parameters, config)
            arrays, n, memory = self._answer(request)
            self._record_answer(request, config, arrays)
        except Exception as error:
            return [], 0, self._refusal(error, config)
        rows = rows_of_run(self._data_of_node(), request)
        said = description_of_node(rows, request, self._rules, self._reported_name)
        own = {**said, **self._policy.reason_to_decline(request, rows), **memory}
        return wire.write_fit(arrays, n, request.number, self._key, own, layers=request.layers)

    def evaluate(self, parameters: list[Array], config: wire.Config) -> tuple[float, int, wire.Config]:
        """Return the mean squared reconstruction error of the rows, as the answer to an evaluate message."""
        try:
            request = wire.read_request(parameters, config)
            if request.stage != wire.EVALUATE:
                raise ProtocolError(
                    f"An evaluate message can ask only for the stage {wire.EVALUATE}, but this one asks for "
                    f"{request.stage}. Send it as a train message."
                )
            arrays, n, _ = self._answer(request)
            self._record_answer(request, config, arrays)
        except Exception as error:
            return 0.0, 0, self._refusal(error, config)
        return wire.write_evaluate(arrays, n, request.number, self._key)

    def get_properties(self, config: wire.Config) -> dict[str, wire.Scalar]:
        """Return the properties that a server may know before a run: columns, algorithms, layout and version.

        The number of columns is reported as 0 if the node takes part only in runs over columns.
        """
        data = self._data_of_node()
        there = set(registry.TRACKERS) if isinstance(data, Stream) else set(registry.ALGORITHMS)
        columns = data.d or 0
        if parties.only_columns(self._rules):
            columns = 0
        return {"n_features": columns, "algorithms": ",".join(sorted(self._served & there)), **wire.SPOKEN}

    def _answer(self, request: wire.ServerRequest) -> tuple[Arrays, int, wire.Config]:
        """Return the answer to a message, the number of rows to report, and the report on the client's memory."""
        self._admit(request)
        rows = self._require_enough_rows(request)
        data = rows
        self._lots.begin_run(self._rules, request.run)
        self._require_same_rows(request, rows)
        self._account.find_ledgers(rows)
        if self._rules.keeps_ledger and self._context is not None and isinstance(rows, LocalData):
            elsewhere.warn_of_other_ledgers(self._account.path, rows, self._context)
        if isinstance(rows, LocalData):
            frame = self._policy.frame_of(request, rows)
            if frame.covariates is not None and frame.covariates.names:
                frame = frame.with_names((rows.names or ())[: -len(frame.covariates.names)])
            elif frame.names is not None:
                # If the frame names a text column, the rows contain the columns derived from the text column instead.
                frame = frame.with_names(rows.names, frame.split)
            data = self._lots.in_frame(rows, frame)
        with nullcontext() if self._store is None else self._store.locked(request.run):
            before = self._recalled_memory(request)
            with translating_errors(request):
                up, after = self._stage_answer(request, data, before)
                up = self._policy.without_local_results(request, up, data.d)
                self._account.count_answer(request, rows, up)
            self._save_memory(request, before, after)
        self._save_local_result(request, data, after)
        # Under masks, the answer already contains a digest of the messages on which the memory depends, so the report
        # is empty.
        memory: wire.Config = {}
        if request.stage != messages.STAGE:
            memory = wire.write_memory(before, after)
        return up, _reported_row_count(request, data, up), memory

    def _admit(self, request: wire.ServerRequest) -> None:
        with translating_errors(request):
            limits.check_numbers(request)
            self._policy.admit(request)
            limits.check_arrays(request)
            # Messages are counted before rows are read. Otherwise a server could collect any number of refusals that
            # depend on the rows.
            self._policy.count_message()
            self._account.count_message()

    def _require_enough_rows(self, request: wire.ServerRequest) -> LocalData | Stream:
        every = self._data_of_node()
        data = select_columns(every, request, self._rules)
        d = data.d
        if d is not None and request.frame.covariates is not None:
            d -= len(request.frame.covariates.names)
        with translating_errors(request):
            limits.check_sizes(request, d, getattr(data, "n", None))
        if self._rules.max_epsilon is not None:
            return data  # Noise protects even few rows and rare columns, but a refusal would reveal single rows.
        if isinstance(data, LocalData) and not data.n:
            return data  # An answer from no rows reveals nobody.
        if isinstance(data, LocalData) and data.table_length < self._rules.min_rows:
            raise RefusalError(
                f"This node has fewer rows than its min_rows, {self._rules.min_rows}. Start the run again when it has "
                "more."
            )
        # In a run over columns, the columns of `data` are people, so the check does not apply.
        if self._rules.min_rows > 1 and isinstance(every, LocalData) and request.frame.split is None:
            assert isinstance(data, LocalData)
            small_cells.refuse_revealing(every, data, self._rules, self._cells, barred=self._lots.barred)
        return data

    def _require_same_rows(self, request: wire.ServerRequest, rows: LocalData | Stream) -> None:
        """Refuse to continue a run if the node's file has changed since the run's first message.

        Otherwise, the server would combine answers from the old file and the new file. A node that keeps a copy of its
        rows needs no check, because it always answers from the copy.
        """
        rules, context = self._rules, self._context
        at_rest = isinstance(rows, LocalData) and request.frame.split is None and not limits.is_silent(request.stage)
        if context is None or rules.keeps_rows or rules.answers != "fixed" or not at_rest:
            return
        assert isinstance(rows, LocalData)
        whole = rows.all_columns  # The run may have begun with other columns of the same rows.
        mark = f"{whole.fingerprint():x} {whole.n} {whole.heading.digest}"
        known = {key: str(value) for key, value in records.values_in(context.state, _BEGAN).items()}
        if self._began is not None:
            # After a restart of the node, or if a run continues from a checkpoint, the context is empty. Therefore, the
            # digests are also read from the file in memory_dir.
            known = folders.rows_at_start(self._began) | known
        run = hashlib.blake2s(request.run.encode(), digest_size=8).hexdigest()
        if run in known and known[run] != mark:
            raise RefusalError(
                "The rows of this node changed after the run began. Start the run again, and do not change the file of "
                "the node until the run has ended."
            )
        if run not in known:
            known = dict([*known.items(), (run, mark)][-_RUNS:])
            records.put_values(context.state, _BEGAN, known)
            if self._began is not None:
                folders.save_rows_at_start(self._began, known)

    def _recalled_memory(self, request: wire.ServerRequest) -> Arrays:
        memory = self._store.load(request.run) if self._store is not None else RunMemory()
        # Other stages answer a repeated message from the memory before its first answer. Under noise or masks, the
        # newest memory is used, because secrets and privacy budget must not be spent twice.
        if NOISE in request.layers or request.stage == messages.STAGE:
            return memory.newest_of(request.run)
        return memory.before_message(request.run, request.number)

    def _stage_answer(
        self, request: wire.ServerRequest, data: LocalData | Stream, memory: Arrays
    ) -> tuple[Arrays, Arrays]:
        """Return the answer and the new memory of the stage's client half.

        If the client cannot answer under masks, the loss is counted in the ledgers.
        """
        try:
            return client_half.answer(
                request.stage,
                request.arrays,
                data,
                memory,
                layers=request.layers,
                demands=self._account.demands(request) if request.stage == messages.STAGE else None,
                fixed=self._fixed,
                dither=self._dither,
                who=ClientIdentity(self._key, self._reported_name),
            )
        except SpentError as error:
            self._account.count_lost_sum()
            # The memory is saved without the secrets of the set-up, so that a server needs a new set-up for every
            # attempt.
            if self._store is not None:
                self._store.save(RunMemory(request.run, request.number, {}, error.memory))
            raise

    def _save_memory(self, request: wire.ServerRequest, memory: Arrays, new_memory: Arrays) -> None:
        """Save the memory that the next message needs. Under masks, save only the memory after this message."""
        if not (new_memory or memory):
            return
        if self._store is None:
            raise RefusalError(
                f"{request.algorithm} keeps a state between messages, but this client has no Flower context to store "
                "it. Write PCAClient(data, context=context)."
            )
        # Under masks, only the newest memory is used: see `_recalled_memory`.
        masked = request.stage == messages.STAGE
        self._store.save(RunMemory(request.run, request.number, {} if masked else memory, new_memory))

    def _save_local_result(self, request: wire.ServerRequest, data: LocalData | Stream, new_memory: Arrays) -> None:
        """Save the node's own result, if its operator has set a folder."""
        stage = limits.stage_asked(request)
        if self._local_file is None or stage is None:
            return
        own = client_half.local_results(stage, messages.stage_arrays(new_memory), data)
        if request.frame.covariates is not None:
            own = {**own, **local_adjustment(data)}
        if own:
            header = {"algorithm": request.algorithm, "run": request.run, **parties.names_for_result(data)}
            place = folders.free_result_path(self._local_file, request.algorithm)
            with folders.lock_file(self._local_file):
                # The hints are logged once per run, before its first result is written.
                if SITE_SCALE in own and not folders.is_result_of_run(place, request.run):
                    for hint in hints_of_constant_columns(data):
                        logging.getLogger("flwr").warning("Of this node's rows: %s", hint)
                files.write(place, "own result", header, own, private=True)

    def _set_context(self, context: Context | None) -> None:
        """Set the attributes that depend on the context, such as the node's number, its name and its file paths."""
        self._context = context
        rules = self._rules
        self._key, self._name = wire.NO_KEY, ""
        self._store: StateStore | FileStore | None = None
        self._local_file: Path | None = None
        self._cells: Path | None = None
        self._began: Path | None = None
        statistics: Path | None = None
        if context is not None:
            who = folders.key_of(context)
            self._key = int(context.node_config.get("partition-id", wire.NO_KEY))
            self._name = str(context.node_config.get("name", ""))
            self._store = StateStore(context.state)
            if rules.memory_dir is not None:
                self._store = FileStore(rules.memory_dir, who)
                statistics = folders.fixed_file(rules.memory_dir, who)
                self._cells = folders.cells_file(rules.memory_dir, who)
                self._began = folders.rows_at_start_file(rules.memory_dir, who)
            if rules.output_dir is not None:
                self._local_file = folders.local_file(rules.output_dir, who)
                if isinstance(self._lots.data, Stream):
                    self._lots.data.write_to(self._local_file.with_suffix(""))
        self._fixed: Callable[[LocalData], FixedData] | None = None
        if rules.answers == "fixed":
            self._fixed = functools.partial(FixedData.of_rows, path=statistics, gaps=rules.missing == "mean")
        self._dither: DitherSource = system_dither
        if rules.noise_seed is not None:
            self._dither = functools.partial(seeded_dither, rules.noise_seed, max(self._key, 0))
        self._policy = Policy(rules, served=self._served, context=context)
        self._account = Account(rules, context=context)
        self._record = RunRecord(rules, context=context)

    @property
    def _reported_name(self) -> str:
        """The name that the node reports, or an empty string if it reports no name."""
        if self._rules.share_names:
            return self._name or getattr(self._lots.data, "site", "")
        return ""

    def _data_of_node(self) -> LocalData | Stream:
        self._lots.data = node_rows(self._lots.data, self._rules)
        return self._lots.rows_to_answer_from(self._rules, self._context)

    def _refusal(self, error: Exception, config: wire.Config) -> wire.Config:
        about: wire.Config = {wire.SITE: self._reported_name}
        refused = refusal_reply(error, config, self._key, hides_reasons=self._rules.hides_reasons, description=about)
        self._record.record_refusal(config, str(error))
        return refused

    def _record_answer(self, request: wire.ServerRequest, config: wire.Config, answer: Arrays) -> None:
        """Record an answer in the record of runs, before the answer leaves the node."""
        stage = limits.stage_asked(request) or request.stage
        wanted = request.frame.names
        self._record.record_answer(config, len(wanted) if wanted else self._lots.data.d, stage, answer)


def _reported_row_count(request: wire.ServerRequest, data: LocalData | Stream, answer: Arrays) -> int:
    """Return the number of rows that the node reports to Flower with an answer."""
    # Masks hide the number of rows, but Flower sends this number unmasked.
    if request.stage == messages.STAGE or not answer:
        return 0
    if NOISE in request.layers:  # Under noise, the number of rows is never sent without noise.
        return 1
    # For a stream, the answer contains the number of rows of this step.
    if isinstance(data, LocalData):
        return data.table_length
    return int(answer["rows"])
