"""Policy: the checks of every message against a node's rules. The node does not answer a message that is refused."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Final

import numpy as np
from flwr.app import Context

from flower_pca import registry, wire
from flower_pca.base import labels
from flower_pca.base.errors import OTHER_SERVER, ConfigError
from flower_pca.clients.policy import limits, small_cells
from flower_pca.clients.policy.refusals import OPERATOR, RefusalError
from flower_pca.clients.policy.rules import Rules, allowed_names
from flower_pca.core.stage import Arrays
from flower_pca.layers import NOISE, SINGLE, noise
from flower_pca.layers import single as apart
from flower_pca.masking import messages
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.wire import records

_ANSWERED: Final = "flower_pca.answered"
_ROUNDING: Final = 1e-9  # the relative tolerance for rounding errors in sums of budgets
_LOUDEST: Final = 256.0  # the largest privacy budget that a node accepts from a run: an epsilon of about 200


class Policy:
    """The checks that apply a node's rules on algorithms, masks, noise, missing values and the number of messages.

    Parameters
    ----------
    rules : Rules
        The node's rules.
    served : Set
        The algorithms that the node serves under these rules.
    context : Context or None, default=None
        The node's Flower context, in which the messages of a run are counted.
    """

    def __init__(self, rules: Rules, *, served: Set[str], context: Context | None = None) -> None:
        if rules.max_messages is not None and context is None:
            raise ConfigError(
                "max_messages needs the node's context. Write PCAClient(data, context=context, max_messages=...).",
                setting="max_messages",
            )
        self._rules, self._served, self._context = rules, served, context

    def admit(self, request: wire.ServerRequest) -> None:
        """Refuse a message that the rules on algorithms, masks or noise do not allow.

        If the message asks only for names, only the rules on noise apply.
        """
        if NOISE in request.layers or self._rules.floor is not None:
            self._check_noise(request)
        if not limits.is_silent(request.stage):
            self._check_algorithm(request)
            self._check_masks(request)

    def _check_algorithm(self, request: wire.ServerRequest) -> None:
        """Require that the rules allow the named algorithm, and the algorithms that the stage belongs to."""
        inner = messages.inner_stage(request.arrays) if request.stage == messages.STAGE else None
        stage = inner or request.stage
        owners, named = registry.algorithms_of_stage(stage), set(request.algorithm.split("+"))
        by_name = stage in registry.EXTRA_STAGES  # An extra stage is served only if the operator has named it.
        algorithms = {*named, stage} if by_name else named
        # If the stage belongs to none of the named algorithms, the node must also serve the stage's own algorithms.
        # Otherwise, a server could name an algorithm that the node serves, but run a stage that it does not serve.
        if not named & owners:
            algorithms = algorithms | owners
        if named <= set(registry.OPENING_ONLY) and not by_name and limits.asks_for_products(stage, request):
            got = "products" if "opening" in stage else stage
            raise RefusalError(
                f"A run of {request.algorithm} may ask nodes only for counts, means and deviations, but this message "
                f"asks for {got}. {OTHER_SERVER}"
            )
        if inner is not None:
            limits.check_arrays(request)  # `bare` derives the parts of an answer from these arrays.
            if limits.has_no_meaning_in_sum(stage, request.arrays):
                raise RefusalError(
                    f"A masked {stage} with these arrays would reveal a node's own results. {OTHER_SERVER}"
                )
        unserved, stages = algorithms - self._served, registry.STAGES
        unnamed = sorted(name for name in unserved if name in allowed_names() and stages[name].by_row)
        if unnamed and self._rules.allow is None:
            listed = ", ".join(unnamed)
            raise RefusalError(
                f"Answers for {listed} compare single rows, so this node sends them only if its rule allow names "
                f"{listed}. {OPERATOR}"
            )
        if unserved:
            raise RefusalError(
                f"This node does not serve {', '.join(sorted(unserved))}. It serves "
                f"{', '.join(sorted(self._served)) or 'none'}. {OPERATOR}"
            )

    def _check_noise(self, request: wire.ServerRequest) -> None:
        """Require the noise that the node's rules name. A set-up of masks needs no noise, because it sends no data."""
        if limits.stage_asked(request) is None:
            return
        says = request.layers.get(NOISE)
        if says is not None and not self._rules.allow_noise:
            raise RefusalError(
                "This node does not take part in runs with noise, because its allow_noise is not set. Run without "
                "dp, or ask the node's operator."
            )
        floor = self._rules.floor
        if floor is not None and (why := floor.reason_to_refuse(says)) is not None:
            raise RefusalError(why)
        if says is None:
            return
        most, budget = self._rules.total_budget, noise.budget_of_message(says)
        if most is not None and budget > most * (1.0 + _ROUNDING):
            raise RefusalError(
                f"The run's privacy budget is larger than this node allows: max_epsilon={self._rules.max_epsilon:g} "
                f"at delta {self._rules.max_delta:g}. {OPERATOR}"
            )
        # In runs with noise, each row is clipped, so answers depend on whether single rows exceed a bound. With almost
        # no noise, such answers would reveal single rows.
        if self._rules.answers != "rows" and budget > _LOUDEST:
            raise RefusalError(
                f"The run's noise is too small for this node: its sum of (clip^2 / noise)^2 is {budget:g}, but this "
                f"node allows at most {_LOUDEST:g}. Run with a smaller epsilon."
            )

    def _check_masks(self, request: wire.ServerRequest) -> None:
        masked = request.stage == messages.STAGE
        if self._rules.masked_only and not masked:
            raise RefusalError(
                "This node answers masked messages only, because its rule masked-only is set. Start the run with "
                "masks: mask=True in Python, mask=true in the run-config."
            )
        if masked and messages.has_no_self_masks(request.arrays) and not self._rules.single_masks:
            raise RefusalError(
                "This node does not take part in masked sums without self-masks, because its single_masks is not set. "
                "Leave self_masks=False out, or ask the node's operator."
            )
        tables = request.layers.get(SINGLE)
        if masked and tables and apart.has_unequal_numbers(tables):
            # If answers depend on a setting, and only one client gets a different value, the sum could reveal the
            # answer of this client.
            raise RefusalError(
                "A masked message has different values of a setting for different clients, so the sum could reveal the "
                "answer of a single client. Send the same value to all clients."
            )

    def count_message(self) -> None:
        """Count a message of this run, or refuse the message if the run has no messages left."""
        most = self._rules.max_messages
        if most is None or self._context is None:
            return
        answered = int(records.values_in(self._context.state, _ANSWERED).get("messages", 0))
        if answered >= most:
            raise RefusalError(
                f"This node answers at most {labels.count(most, 'message')} in a run (its rule max-messages). Use an "
                "algorithm that needs fewer, such as covariance, or ask the node's operator to raise max-messages."
            )
        records.put_values(self._context.state, _ANSWERED, {"messages": answered + 1})

    def frame_of(self, request: wire.ServerRequest, data: LocalData) -> Frame:
        """Return the message's frame. With noise, the node's own constants replace missing values.

        If means of the rows replaced missing values, one row would change these means, and thereby all rows with a
        missing value. Noise for a single row does not hide this. Constants do not depend on the rows.
        """
        if NOISE in request.layers and self._rules.max_epsilon is not None:
            # The rows already contain the constants. A row in which a value is still missing counts as zeros.
            return replace(request.frame, fill=np.full(data.d, np.nan), own=False)
        if not data.missing:
            return request.frame
        if NOISE not in request.layers:
            self._check_gaps(request, data)
            return request.frame
        constants = self._rules.gap_constants(data.names, data.d)
        if constants is None or np.isnan(constants[data.n > np.asarray(data.observed_moments().value_counts)]).any():
            raise RefusalError(
                "A run with noise cannot fill the missing values of this node, because its gap_values has no constant "
                f"for at least one of their columns. {OPERATOR}"
            )
        return replace(request.frame, fill=np.nan_to_num(constants), own=False)

    def _check_gaps(self, request: wire.ServerRequest, data: LocalData) -> None:
        """Refuse a message that replaces missing values by the server's values, unless the rules allow this.

        Answers to such a message reveal the sum of the rows in which a value is missing.
        """
        chosen = request.frame.fill is not None or "gaps" in request.arrays
        if request.frame.own or not chosen:
            return
        remedy = 'Run with missing="local_mean", or ask the node\'s operator.'
        if self._rules.missing != "mean":
            raise RefusalError(
                f'This node fills missing values with its own means only, but the run asks for missing="mean". {remedy}'
            )
        if small_cells.has_few_gaps(data, self._rules.min_rows):
            raise RefusalError(
                f"A column of this node has fewer than {self._rules.min_rows} missing values (its min_rows), so an "
                f"answer with the means of all nodes in their place could reveal single rows. {remedy}"
            )

    def without_local_results(self, request: wire.ServerRequest, answer: Arrays, d: int | None) -> Arrays:
        """Return an answer without the node's own results, unless the rules share them or masks hide them."""
        if self._rules.share_local or request.stage == messages.STAGE:
            return answer
        parts = registry.STAGES[request.stage].parts(request.arrays, d or None)
        shown = dict(answer)
        for name in (name for name in answer if parts[name].own):
            # The server refuses answers with missing parts or unexpected shapes, so zeros replace the part. A part of
            # open size becomes empty.
            shown[name] = np.zeros_like(answer[name])
            if parts[name].open:
                shown[name] = answer[name][:, :0]
        return shown

    def reason_to_decline(self, request: wire.ServerRequest, rows: LocalData | Stream) -> wire.Config:
        """Return the reason why the node declines the alternative algorithm, or an empty dict if the node accepts it.

        The alternative algorithm sends all of C_i.
        """
        alternative, most = request.alternative, self._rules.max_columns
        if alternative and alternative not in self._served:
            return {wire.DECLINES: f"it serves {', '.join(sorted(self._served))}"}
        if not alternative or not isinstance(rows, LocalData):
            return {}
        if most is not None and most < rows.d:
            return {wire.DECLINES: f"its max_columns is {most}"}
        if not limits.fits_memory(request.stage, limits.rows_for_memory(rows.n, request), rows.d):
            return {wire.DECLINES: f"it has too little memory for all pairs of {rows.d} columns"}
        return {}
