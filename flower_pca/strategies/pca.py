"""PCAStrategy: a question, asked of the nodes of a Flower grid."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any, Final, Unpack

from flower_pca import assembly, registry
from flower_pca.assembly import AnyRun
from flower_pca.base.errors import ConfigError
from flower_pca.base.signature import spelt_out
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.question import Question
from flower_pca.core.settings import Asked
from flower_pca.results import start as starts
from flower_pca.results.pca import PCAResult
from flower_pca.results.start import Start
from flower_pca.strategies.base import FlowerStrategy
from flower_pca.strategies.waits import SUMMED, Waits

_COMPONENTS: Final = 2  # where the caller does not say
_MIN_NODES: Final = 2
_DEFAULTS: Final = {**{f.name: f.default for f in fields(Question)}, "n_components": _COMPONENTS}


class PCAStrategy(FlowerStrategy[PCAResult]):
    """Federated PCA as a Flower Strategy.

    Args:
        algorithm: "auto", which is krylov, or covariance where that costs less; by default with oversample="auto", by
            which krylov's blocks are wide. Another name, a spec string such as "faps(inner_steps=5)", or an instance;
            or a whole `Question`.
        min_nodes: Nodes (or clients that they host) to wait for, and to keep. If left out, 2; of a Question, its
            min_clients.
        node_timeout: Seconds to wait for them; then NotEnoughNodes is raised.
        round_timeout: Seconds to wait for the answers of a round; nodes that have not answered are left out of it.
        action: Flower's name of the nodes' functions, where they were added by `clients.register`.
        hosted: In simulations whose virtual nodes host many clients, how these answer: "stacked", each for itself in
            one message, or "summed", checked and added up by the node. None where each node is a client.
        checkpoint: File to keep the state of the run in after every round. If it is there at the start, the run goes
            on from it; a finished run removes it.
        start: Components to begin with, for an algorithm that iterates: an earlier result, its file, or components as
            rows.
        fraction_train: What Flower calls `fraction`.
        min_available_nodes, min_train_nodes: What Flower calls `min_nodes`; the larger one holds.
        **asked: What is asked, where `algorithm` is not a Question: n_components (2 if left out), and what else
            `Question` names, such as center, scale, seed, mask=True or dp="dp(epsilon=1.0, delta=1e-6, clip=10.0)".

    Example:
        >>> @app.main()
        ... def main(grid, context):
        ...     result = PCAStrategy("krylov", n_components=5).fit(grid)
        ...     result.save("/tmp/components.npz")
    """

    @spelt_out(Asked, _DEFAULTS)
    def __init__(
        self,
        algorithm: str | Algorithm[Any] | Question = "auto(oversample='auto')",
        *,
        min_nodes: int | None = None,
        node_timeout: float = 60.0,
        round_timeout: float = 600.0,
        action: str | None = None,
        hosted: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        start: Start | None = None,
        fraction_train: float | None = None,
        min_available_nodes: int | None = None,
        min_train_nodes: int | None = None,
        **asked: Unpack[Asked],
    ) -> None:
        whole = isinstance(algorithm, Question)
        if fraction_train is not None:
            if "fraction" in asked:
                raise ConfigError(
                    "fraction_train beside fraction", must="left out", got=fraction_train, then="Keep one of them."
                )
            asked["fraction"] = fraction_train
        least = [nodes for nodes in (min_available_nodes, min_train_nodes) if nodes is not None]
        if least and min_nodes is not None:
            what, remedy = "min_available_nodes or min_train_nodes beside min_nodes", "Keep one of them."
            raise ConfigError(what, must="left out", got=max(least), then=remedy)
        min_nodes = max(least) if least else min_nodes
        question = assembly.question(algorithm, **(asked if whole else {"n_components": _COMPONENTS, **asked}))
        if min_nodes is None:
            min_nodes = question.min_clients if whole else _MIN_NODES
        self.question = question = replace(question, min_clients=min_nodes)
        question.check_checkpoint(checkpoint)
        if question.dp is not None and question.dp.noise_seed is not None:
            remedy = "Leave it out; each node draws its noise from its operating system."
            raise ConfigError("noise_seed of dp at nodes", must="None", got=question.dp.noise_seed, then=remedy)
        waits = Waits(
            min_nodes=min_nodes,
            node_timeout=node_timeout,
            round_timeout=round_timeout,
            action=action,
            hosted=hosted,
        )
        super().__init__(waits, checkpoint)
        self._start = None if start is None else starts.known(start)
        if start is not None:
            self._made()  # which checks what to start from
        if hosted == SUMMED:
            assembly.checked(question, hosted=hosted)

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm."""
        return self.question.algorithm

    def _made(self, *, num_rounds: int = 0, start: Start | None = None) -> AnyRun:
        question = self.question
        if num_rounds and isinstance(question.algorithm, Iterative):
            question = replace(question, algorithm=registry.make(question.algorithm, max_rounds=num_rounds))
        return assembly.run(question, judged=self._waits.hosted is None, start=self._start if start is None else start)
