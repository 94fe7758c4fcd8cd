"""What the paper of `sims.over_air` says of its figures, and limits that a right implementation keeps at its size."""

from __future__ import annotations

from typing import Final

WORDS: Final = {
    "fig1a": "simple PCA does not improve; PETRELS is the fastest, then NORST and NoDet, then GROUSE",
    "fig1b": "NORST and NoDet far below simple PCA; NoDet adapts without detection, and goes on where NORST stops",
    "stall": "after a certain time NORST stops improving, NoDet goes on and gets a better result",
    "fig2a": "the error ends at roughly the noise, for each sigma",
    "fig2b": "all come down; the more is missing the more rows it takes",
    "fig3a": "as well as NORST, which cannot deal with noise",
    "fig3b": "as well as NORST, but not below the noise",
    "fig4a": "a larger eta does what less noise does; eta=50 at sigma=1e-4 overlaps eta=1 at 1e-8",
    "fig4b": "a larger gap is faster, and more robust",
}
AIR: Final = "over the air, sigma=1e-6"
# Upper bounds of every seed, by figure, curve and batch. Those of the small size are in the tests.
LIMITS: Final[dict[str, dict[str, dict[int, float]]]] = {
    "fig1a": {"NoDet": dict.fromkeys(range(3, 51), 0.07)},
    "fig1b": {"NoDet": {5: 7e-4, 10: 3e-7, 26: 0.35, 35: 4e-7}},
    "fig2b": {
        "sigma=1e-06, missing 0.2": {25: 1e-6},
        "sigma=1e-06, missing 0.4": {25: 1.2e-4},
        "sigma=1e-06, missing 0.6": {25: 0.015},
    },
    "fig3b": {AIR: {5: 0.025, 10: 3e-4}},
}
