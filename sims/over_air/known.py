"""What `sims.over_air` should show: figures of an independent reference, and limits, both at the paper's size."""

from __future__ import annotations

from typing import Final

EXPECTED: Final = {
    "fig1a": "from b3 on: NoDet .039, NORST .039, GROUSE .074, PETRELS .09, simple PCA .25",
    "fig1b": "NoDet b1 .24, b2 .042, b3 6.8e-3, b5 2.1e-4, b10 3.1e-8, b15 5e-12, b26 .25, b27 .041, b29 1.3e-3, "
    "b35 3.0e-8; NORST b26 1.0, b27 .25; GROUSE b5 1.2e-3, b10 5.9e-9, b26 1.0; PETRELS b1 4e-3, b5 1.8e-5, b10 5.1e-8",
    "fig2a": "b25 .32 sigma: .35, 3.5e-3, 3.5e-5, 3.5e-7",
    "fig2b": "b25 3.2e-7, 3.3e-7, 3.4e-5, 4.5e-3",
    "fig3a": "as NORST; with r=10 .039",
    "fig3b": "as NoDet, with r=10 down to 9e-8",
    "fig4a": "s=1.1: sigma 1e-4 eta 1/10/50: 3.1e-3, 5.9e-4, 4.6e-7; sigma 1e-8: 3.1e-7 ... 4.6e-11",
    "fig4b": "a larger gap is faster and more robust",
    "robust": "b1 .016, b3 9e-4, b5 5.9e-5, b10 9e-8; no wrong support entry; outliers ignored: SE 1.0",
    "detect": "the very batch of the change, no false alarm, with sigma up to 1e-2",
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
