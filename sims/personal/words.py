"""Words of the debates: those that the PerPCA paper's Table 7 names for each year, and those that say nothing."""

from __future__ import annotations

from typing import Final

KEYWORDS: Final = {
    year: words.split()
    for year, words in {
        1960: "peace castro africa kennedy now world",
        1976: "billion carter governor africa ford people world",
        1980: "coal oil money energy social security reagan",
        1984: "union tax soviet arms leadership proposal",
        1988: "drug young strong build future enforcement good",
        1992: "bill school children care health taxes reform plan control",
        1996: "clinton security medicare budget tax dole bob",
        2000: "school public plan children money social security health tax",
        2004: "wrong plan cost free saddam troops iraq war health tax",
        2008: "nuclear oil troops iraq afghanistan pakistan health iran energy",
        2012: "million small business china medicare romney jobs tax",
        2016: "russia trump hillary companies taxes mosul iran deal",
        2020: "harris pence trump down joe biden jobs donald health",
    }.items()
}
STOP_WORDS: Final = frozenset(
    word
    for line in (
        "a about after again all also am an and any are arent as at back be because been before being both but by",
        "came can cannot cant come could couldnt did didnt do does doesnt doing done dont each even every for from",
        "get gets getting give go goes going gone got had has have havent having he hed her here heres him his how",
        "i id if ill im in into is isnt it its ive just know let lets like look lot made make many may me mean",
        "might more most much must my need never no nor not of off ok on one only or other our out over own put",
        "really right said same saw say saying says see shall she should so some something still such take talk",
        "talking tell than thank that thats the their them then there theres these they theyre theyve thing things",
        "think this those through time to told too two under until up upon us very want wants was wasnt way we",
        "well went were werent weve what whats when where whether which while who whos why will with without wont",
        "would wouldnt yes yet you youd youll your youre youve",
    )
    for word in line.split()
)
