"""How the records agree with the papers, and why where they do not: judged by hand, an entry for every record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AGREEMENTS: Final = ("same", "same order", "in part", "differs", "cannot be had")
_OTHERS: Final = "The other eleven sets cannot be had here."
_VANILLA: Final = "QR factors with a positive diagonal at every client leave little to align."
_SWING: Final = "Errors swing by more than their means, as in the paper."


@dataclass(frozen=True)
class Judgement:
    """One of AGREEMENTS, and what differs, and why."""

    agreement: str
    why: str = ""


JUDGED: Final = {
    "local_power/table1": Judgement("in part", f"{_OTHERS} Vanilla does not fall behind: see Table 6."),
    "local_power/table2": Judgement("same", f"{_OTHERS} {_SWING}"),
    "local_power/table3": Judgement("same", _OTHERS),
    "local_power/table4": Judgement("same", f"{_OTHERS} Connect-4 has a column more: a one-hot code of its own."),
    "local_power/table5": Judgement("same", f"{_OTHERS} Abalone in its units; scaled to -1 .. 1 eta is double."),
    "local_power/table6": Judgement(
        "in part",
        f"{_OTHERS} OPT, sign-fixing and the one-shot methods come within a factor of three or within their spread. "
        f"Vanilla does as well as sign-fixing: {_VANILLA}",
    ),
    "local_power/table7": Judgement("same", f"{_OTHERS} {_SWING} It names no number of messages."),
    "local_power/fig2b": Judgement("differs", f"Vanilla is as stable as sign-fixing: {_VANILLA} OPT swings at p=8."),
    "local_power/theorem2": Judgement("same", "Near the true space OPT keeps rho well down; without it rho nears 2."),
    "local_power/assumption1": Judgement("same", "Met on no set; the paper, too, calls it too stringent."),
    "personal/fig1": Judgement("same"),
    "personal/fig10": Judgement("same", "Straight where 1 / delta^2 is large. (42) is read so that (47) comes out."),
    "personal/fig11": Judgement("same", "(42) is read so that (47) comes out."),
    "personal/table2": Judgement("same order", "The parameters are not in the paper; ours were fitted to its figures."),
    "personal/table3": Judgement("differs", "The paper's is one draw; theta differs more by start than by rank."),
    "personal/topics": Judgement(
        "in part",
        "Another corpus of the same debates. Three in four of its words are found with a step that grows, or one of "
        "10; with one of 0.5 PerPCA has hardly moved after 20 messages.",
    ),
    "robust/fig3": Judgement("same", "A ratio of 0.03 after r for DCF-PCA; rounding for consensus_rpca."),
}
