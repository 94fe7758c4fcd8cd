"""The columns that runs may use as covariates, which the node's own rule names."""

from __future__ import annotations

from flower_pca.clients.policy.refusals import OPERATOR, RefusalError
from flower_pca.clients.policy.rules import ANY, Rules
from flower_pca.names.coding import source_of
from flower_pca.names.columns import enumeration
from flower_pca.rows.covariates import Covariates


def check(covariates: Covariates, rules: Rules) -> None:
    """Refuse covariates that the node's rules do not name."""
    allowed = {*rules.covariate_names}
    if ANY in allowed:
        return
    if unnamed := [name for name in covariates.names if (source_of(name) or name) not in allowed]:
        raise RefusalError(
            f"This node does not let a run use {enumeration(unnamed)} as a covariate, because its rule covariates does "
            f"not name it. {OPERATOR}"
        )
