"""What goes with a run over columns at different places, and what does not: a sentence for each, with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flower_pca.base.errors import ConfigError

if TYPE_CHECKING:
    from flower_pca.core.question import Question

ALGORITHMS: Final = ("krylov", "ssi", "local_power", "covariance")  # of which auto takes one

_LEAVE: Final = "Leave it out."
# By the name in a question: what it must be, and what to do.
_RULES: Final[dict[str, tuple[object, str, str]]] = {
    "dp": (None, "left out, as to hide one person it would need noise on all scores, which are told of each", _LEAVE),
    "channel": (None, "left out, as each party's loadings need the very scores of the others", _LEAVE),
    "columns": (None, "left out, as each party has columns of its own", "Name them where each party reads its table."),
    "fraction": (1.0, "1.0, as no other party has the columns of one that is not asked", _LEAVE),
    "evaluate": (False, "False, as the variance left out says it exactly", "Read left_out_variance_."),
    "monitor": (False, "False, as limits for new people need the columns of all parties", _LEAVE),
    "influence": (False, "False, as without a client there are no columns of its own to compare", _LEAVE),
    "wire": (("float64", "auto"), '"float64", as loadings are made of the scores that are sent', _LEAVE),
}


def check(asked: Question) -> None:
    """Refuse what a run over columns cannot answer, or cannot answer soundly."""
    if asked.split == "rows":
        return
    if asked.algorithm.name not in ALGORITHMS:
        rule = f"one of {', '.join(ALGORITHMS)} or auto, which need nothing but products"
        raise ConfigError("The algorithm over columns", must=rule, got=asked.algorithm.name, then="Use krylov.")
    for name, (usual, rule, remedy) in _RULES.items():
        given = getattr(asked, name)
        if given != usual and not (isinstance(usual, tuple) and given in usual):
            raise ConfigError(f'{name} with split="columns"', must=rule, got=repr(given), then=remedy)
