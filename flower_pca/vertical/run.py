"""A run over columns at different places: its stages, its model and who takes part."""

from __future__ import annotations

import secrets
from typing import Any

from flower_pca.base.errors import ConfigError
from flower_pca.core.algorithm import Algorithm
from flower_pca.core.model import Model
from flower_pca.core.question import Question
from flower_pca.core.roll import Roll
from flower_pca.core.run import Run
from flower_pca.stages.ritz import RayleighRitz
from flower_pca.vertical.result import ColumnsResult
from flower_pca.vertical.rows import PartyCounts
from flower_pca.vertical.split import Split
from flower_pca.vertical.stages import ColumnsOpening, Loadings


def run(asked: Question, algorithm: Algorithm[Any], choices: dict[str, str], *, started: bool) -> Run:
    """A run over columns at different places: of all parties, to the end, as no other one has the columns of one."""
    if started:
        rule, remedy = "left out, as it begins with scores of people, not with columns", "Leave it out."
        raise ConfigError('start with split="columns"', must=rule, got="one", then=remedy)
    split = Split(asked.centered, asked.scale, asked.missing != "error", secrets.token_hex(16))
    known: Any = {"n_components": asked.n_components, "seed": asked.seed, "summed": asked.mask is not None}
    model = Model(center=False, scale=None, choices=choices, split=split, **known)
    roll = Roll(min_clients=asked.min_clients, seed=asked.seed, summed=known["summed"], everyone=True)
    stages = (ColumnsOpening(width=algorithm.width(asked.n_components)), algorithm, RayleighRitz(), Loadings())
    return Run(stages, model=model, roll=roll, result=ColumnsResult, layers=(PartyCounts(),), asked=asked.plain())
