"""What is refused at each door, as data: the door, what is given, and the sentence that says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from builders import Array, rows, three_lead, two_lead
from fake_grid import grid_of, hosts_of, in_a_run
from sklearn.exceptions import NotFittedError

from flower_pca import (
    DP,
    AirChannel,
    ConfigError,
    DataError,
    ExactPerPCA,
    FederatedPCA,
    LocalPower,
    MaskedSums,
    NotEnoughNodes,
    Ray,
    STMiss,
    make,
    simulate,
    strategies,
)
from flower_pca.clients import PCAClient, client_app
from flower_pca.clients.policy.rules import Rules
from flower_pca.strategies import PCAStrategy, Standardize, TrackingStrategy

GOOD = rows(60, [5.0, 3.0, 2.0, 1.0, 0.5], seed=0)
NAMED = dict(zip(("Aachen", "Bonn", "Trier"), two_lead(3), strict=True))
AIR = AirChannel(noise_std=1e-3)
BUDGET = DP(epsilon=2.0, delta=1e-6, clip=3.0)
HARDLY = DP(epsilon=1e6, delta=1e-6, clip=6.0, noise_seed=3)
COLLUDING = DP(epsilon=2.0, delta=1e-6, clip=3.0, colluding=3)
SEEDED = DP(epsilon=2.0, delta=1e-6, clip=3.0, noise_seed=3)
ALIKE = r"The rows of all clients together must be different from one another. Got the same row everywhere. Check the"
SMALL = "of usual size, 1e-145 at least. Got squares of|numbers whose squares are 0"
MASKED = "The algorithm under masks must be one whose answers add up: "
SHARE = "^max_share must be "
PRODUCTS = "^The algorithm with max_share must be one in which a client can count for"
WITH_SHARE = "with max_share must be|max_share .* must be left out"
SUMMED = 'with hosted="summed" must be '
LEFT_OUT = "left out where the answers of clients are summed"
PARTLY = ", with its other parameters as they usually are"
SAMPLED = "The algorithm under masks and with a fraction .* needs no last answers .* Got "
OWN = "local_components of exact_per_pca "


@dataclass(frozen=True)
class Refused:
    """A sentence, with .* for what is of no matter in it."""

    given: dict[str, Any]
    sentence: str
    error: type[Exception] = ConfigError

    def fault(self, door: Callable[..., Any]) -> str | None:
        """What this door does instead, if it does not say so."""
        try:
            door(**self.given)
        except Exception as error:
            said = any(re.search(part, str(error)) for part in self.parts())
            return None if said and isinstance(error, self.error) else f"{self.given}: {error!r}, not {self.sentence!r}"
        return f"{self.given}: no refusal, not {self.sentence!r}"

    def parts(self) -> list[str]:
        """One of these is said."""
        choices = self.sentence.split("|")
        return ["^" * choice.startswith("^") + spelt(choice.removeprefix("^")) for choice in choices]


def spelt(sentence: str) -> str:
    return ".*".join(re.escape(part) for part in sentence.split(".*"))


def ran(algorithm: Any = "krylov", data: Any = None, n_components: Any = 2, **options: Any) -> None:
    simulate(algorithm, two_lead(5) if data is None else data, n_components=n_components, **options)


def fitted(n_components: Any = 2, data: Any = None, sites: Any = None, **options: Any) -> None:
    FederatedPCA(n_components, **options).fit(two_lead(3, rows=30) if data is None else data, sites=sites)


def unfitted(act: str, X: Array) -> None:
    getattr(FederatedPCA(2), act)(X)


def back(X: Array) -> None:
    FederatedPCA(2).fit([GOOD]).inverse_transform(X)


def strategy(algorithm: Any = "krylov", **options: Any) -> None:
    PCAStrategy(algorithm, n_components=2, **options)


def over_hosts(**options: Any) -> None:
    PCAStrategy("krylov", n_components=2, **options).fit(hosts_of(two_lead(4), each=2))


def over_nodes(**options: Any) -> None:
    PCAStrategy("krylov", n_components=2, **options).fit(grid_of(two_lead(3)))


def client(**rules: Any) -> None:
    PCAClient(GOOD, **rules)


def named(name: str, **options: Any) -> None:
    getattr(strategies, name)(**options)


def budget(**options: Any) -> None:
    DP(epsilon=2.0, delta=1e-6, clip=3.0, **options)


def app(**rules: Any) -> None:
    client_app(lambda context: GOOD, **rules)


def profile(**rules: Any) -> None:
    Rules.of(None, rules)


def node_config(**config: Any) -> None:
    Rules.of_node_config(config)


def strangers(**shards: Any) -> dict[str, Any]:
    """Clients that a number of own components is given for, of which there are three."""
    return {"algorithm": ExactPerPCA(local_components=shards.pop("of")), "data": NAMED, "center": False, **shards}


def scaled(exponent: int, algorithm: str) -> dict[str, Any]:
    return {"algorithm": algorithm, "data": np.array_split(GOOD * 10.0**exponent, 3)}


SIMULATE = [
    *[Refused({"algorithm": name, "mask": True}, MASKED + "krylov, .*Use krylov.") for name in ("uda", "wda")],
    *[Refused({"algorithm": name, "mask": True}, MASKED + ".*Use krylov.") for name in ("dist_pca", "dr_svd")],
    Refused({"algorithm": "local_power", "mask": True}, "under masks must be .*Use local_power(align='none'), with"),
    Refused({"algorithm": "local_power(align='sign')", "mask": True}, "Use local_power(align='none'), with"),
    *[
        Refused({"algorithm": f"exact_per_pca({given})", "mask": True}, f"{MASKED}.*Use exact_per_pca{PARTLY}")
        for given in ("init='upload'", "init='qu'", "collect=True")
    ],
    Refused({"algorithm": "per_pca", "mask": True}, f"{MASKED}.*Use per_pca(eta=0.1){PARTLY}"),
    Refused({"algorithm": "per_pca(eta=0.1, init='upload')", "mask": True}, f"{MASKED}.*per_pca(eta=0.1), with its"),
    *[
        Refused({"algorithm": name, "mask": True, "participation": 0.5}, f"{SAMPLED}{name}. Use ssi.")
        for name in ("consensus_rpca", "exact_per_pca")
    ],
    *[
        Refused({"algorithm": name, "channel": AIR}, f"The algorithm over the air must be .*{name}")
        for name in ("consensus_rpca", "dcf_pca", "exact_per_pca", "per_pca")
    ],
    Refused({"scale": "max_abs", "mask": True}, "scale under masks must be None or 'std', which follow from sums."),
    Refused({"mask": "yes"}, "mask must be True, False, .* Got 'yes'. Choose one of these."),
    Refused({"mask": 3}, 'mask must be True, False, a MaskedSums, or a string such as "masks(neigh'),
    Refused({"mask": "masks(neighbors=2)"}, "Every parameter of masks must be among .* Did you mean 'neighbours'"),
    Refused({"data": two_lead(1), "mask": True}, "The clients of a masked sum must be at least 2", NotEnoughNodes),
    Refused(
        {"algorithm": "ssi", "data": three_lead(3), "dp": BUDGET, "mask": MaskedSums(bound=9.0)},
        "bound of the masks must be left out with dp. Got 9.0.",
    ),
    Refused(
        {"algorithm": "faps", "dp": BUDGET, "mask": True},
        "The algorithm with dp must be one whose answers no row can change by",
    ),
    Refused({"algorithm": "ssi", "dp": BUDGET, "mask": True, "scale": "max_abs"}, "scale under masks must be None or"),
    Refused(
        {"algorithm": "ssi(max_rounds=2)", "dp": BUDGET, "mask": True, "missing": "mean"},
        "missing with dp must be \"error\". Got 'mean'.",
    ),
    Refused(
        {"algorithm": "ssi(max_rounds=2)", "data": three_lead(3), "dp": COLLUDING, "mask": True},
        "of a masked sum must be more than the 3 that may collude. Got",
        NotEnoughNodes,
    ),
    *[Refused({"max_share": share}, f"{SHARE}at least 1/5, as there are 5 clients. Got 0.") for share in (0.19, "19%")],
    *[Refused({"max_share": share}, f"{SHARE}above 0 and at most 1.") for share in (0.0, -0.1, 1.5, "much", True)],
    *[
        Refused({"algorithm": name, "max_share": 0.6}, PRODUCTS)
        for name in ("faps", "uda", "dcf_pca", "exact_per_pca", "local_power")
    ],
    *[
        Refused({"max_share": 0.6, **other}, WITH_SHARE)
        for other in (
            {"mask": True},
            {"scale": "max_abs"},
            {"monitor": True},
            {"influence": True},
            {"split": "columns"},
        )
    ],
    *[
        Refused({"algorithm": "median_pca", **other}, "^The algorithm .* must be one ")
        for other in ({"mask": True}, {"influence": True}, {"channel": "air(noise_std=0.1)"})
    ],
    Refused(
        {"influence": True, "mask": True}, "influence under masks must be False, as nobody sees the answer of a single"
    ),
    Refused(
        {"algorithm": "ssi", "influence": True, "channel": "air(noise_std=0.1)"},
        "influence over the air must be False, as nobody sees the answer",
    ),
    Refused({"algorithm": "ssi", "influence": True, "dp": BUDGET, "max_rounds": 5}, "influence with dp must be False"),
    Refused(
        {"algorithm": "per_pca", "influence": True},
        "The algorithm with influence must be one whose components are all there is to say of a row",
    ),
    Refused({"influence": 1.5}, "influence must be one of True, False"),
    Refused({"algorithm": "sparse_pca", "errors": True}, "with errors must be one whose components are orthonormal"),
    Refused(
        {"algorithm": "sparse_pca", "influence": True},
        "with influence must be one whose components are orthonormal: .*Use krylov",
    ),
    Refused({"algorithm": "sparse_pca", "n_components": 0.9}, "n_components of sparse_pca must be a whole number"),
    Refused(
        {"algorithm": "sparse_pca(cardinality=(3, 3, 3))"},
        "cardinality of sparse_pca must be one number, or one for each of the 2",
    ),
    Refused(
        {"algorithm": "exact_per_pca", "n_components": 0.9},
        "n_components of exact_per_pca must be a whole number. Got 0.9.",
    ),
    Refused(
        {**strangers(of={0: 1, "others": 2}), "mask": True}, "whose answers add up: .*Use exact_per_pca, with its other"
    ),
    Refused(
        strangers(of={3: 1, "others": 1}), "must be one of 3 clients, by position or by the name of its site. Got 3."
    ),
    Refused(strangers(of={"Bon": 1, "others": 1}), "Got 'Bon'. Did you mean 'Bonn'?"),
    Refused(
        strangers(of={1: 1, "Bonn": 1, "others": 1}),
        "Every client in local_components .* must be given once. Got client 1 twice.",
    ),
    Refused(
        strangers(of={0: 1, 1: 1}),
        "must be complete. Got none for Trier. Give it one, or all that are left by 'others'.",
    ),
    Refused(
        {"algorithm": "uda", "start": np.eye(8)[:2]},
        "The algorithm with a start must be one that iterates: krylov, .* Got uda. Use krylov",
    ),
    Refused(
        {"start": np.full((2, 8), np.nan)},
        "must be finite rows. Got shape (2, 8). Give one component per row",
        ValueError,
    ),
    Refused({"start": np.ones(8)}, "must be finite rows. Got shape (8,)", ValueError),
    Refused(
        {"start": np.eye(5)},
        "number of columns must be 5, as in what this run asks. Got 8. Align the features",
        ValueError,
    ),
    Refused({"data": [GOOD[:1]], "n_components": 1}, ALIKE, DataError),
    *[Refused(scaled(exponent, "krylov"), SMALL, DataError) for exponent in (-147, -152, -160, -170, -300)],
    *[Refused(scaled(-152, name), SMALL, DataError) for name in ("ssi", "faps", "local_power", "uda")],
    Refused({"data": [(GOOD * 1e18).astype(np.float32)]}, "1e+16 in single precision. Got a larger one", DataError),
    Refused({"data": [(GOOD * 1e-22).astype(np.float32)]}, "of usual size, 1e-18 at least. Got squares of", DataError),
    Refused(
        {"algorithm": "covariance", "data": [np.ones((1, 3))], "n_components": 1, "dp": HARDLY},
        "with noise, must be at least 2",
        ValueError,
    ),
]
ESTIMATOR = [
    Refused({"n_components": 9}, "min(93, 8) = 8. Got 9"),
    Refused({"sites": [0]}, "sites must be left out of several tables"),
    Refused({"data": GOOD, "sites": [0, 1]}, "inconsistent numbers of samples", ValueError),
    Refused({"data": []}, "Expected 2D array", ValueError),
    Refused(
        {"n_components": 1, "data": GOOD[:1]}, "The rows must be several, to vary .* Got 1 sample. Give", DataError
    ),
    Refused(
        {"n_components": 1, "data": GOOD[:7], "sites": ["a", "b", None, "a", np.nan, "a", "a"]},
        "sites must be the name of one for each row. Got 2 rows without. Name them, or leave these rows out.",
        DataError,
    ),
    Refused({"algorithm": "krilov"}, "Did you mean 'krylov'"),
    Refused({"n_components": "mlee"}, "one of 'mle', 'signal', 'shared'. Got 'mlee'. Did you mean 'mle'"),
    Refused(
        {"n_components": "mle", "data": GOOD[:4]},
        'The rows for n_components="mle" must be at least as many as columns, 5. Got 4. Name a number of',
        DataError,
    ),
    Refused(
        {"n_components": None, "dp": BUDGET}, "n_components with dp must be a whole number. Got None. Name a number."
    ),
    Refused({"n_components": "mle", "dp": BUDGET}, "a whole number. Got 'mle'. Name a number."),
    Refused({"backend": "rey"}, "backend must be one of 'in_process', 'ray'"),
    Refused({"mask": True, "scale": "max_abs"}, "scale under masks must be"),
]
UNFITTED = [
    Refused({"act": act, "X": np.ones((3, 2))}, "not fitted yet", NotFittedError)
    for act in ("transform", "inverse_transform", "score")
]
FITTED = [Refused({"X": np.ones((3, 4))}, "must be 2. Got 4")]
STRATEGY = [
    *[Refused({"algorithm": name, "mask": True}, "The algorithm under masks") for name in ("uda", "dr_svd")],
    *[
        Refused({"algorithm": "ssi", **wrong}, "must be .* Got ")
        for wrong in (
            {"node_timeout": -1},
            {"round_timeout": 0},
            {"action": "a b"},
            {"min_nodes": 0},
            {"fraction": 0.0},
        )
    ],
    Refused(
        {"algorithm": "covariance", "dp": SEEDED},
        "noise_seed of dp at nodes must be None. Got 3.",
    ),
    *[Refused({"hosted": way}, "hosted must be one of None, 'stacked', 'summed'") for way in ("sums", 3, True)],
    Refused(
        {"algorithm": "uda", "hosted": "summed"},
        f"The algorithm {SUMMED}one whose clients get one message and send sums: .* Got uda",
    ),
    Refused({"algorithm": "dr_svd", "hosted": "summed"}, "Got dr_svd. Use krylov."),
    Refused({"algorithm": "consensus_rpca", "hosted": "summed"}, "Got consensus_rpca"),
    Refused({"algorithm": "per_pca", "hosted": "summed"}, "Got per_pca"),
    Refused({"hosted": "summed", "mask": True}, f"mask {SUMMED}{LEFT_OUT}. Got Masked"),
    Refused({"algorithm": "ssi", "hosted": "summed", "channel": "air(noise_std=0.1)"}, f"channel {SUMMED}{LEFT_OUT}"),
    Refused({"hosted": "summed", "influence": True}, f"influence {SUMMED}left out where the answers"),
]
STRATEGIES = [
    Refused(
        {"name": "Krylov", "fraction": 0.5},
        "The algorithm with a fraction of the clients must be .* Got krylov. Use ssi.",
    ),
    Refused({"name": "STMiss", "reus": 1}, "Every parameter of STMiss must be .*'reus'.*Did you mean 'reuse'"),
    Refused({"name": "STMiss", "interval": -1.0}, "interval must be"),
    *[
        Refused({"name": name, "oversampel": 2}, "'oversampel'.*Did you mean 'oversample'")
        for name in ("Krylov", "FAPS", "PerPCA", "STMiss")
    ],
]
STANDARDIZE = [
    Refused({"missing": "median"}, "missing must be one of 'error', 'own_mean', 'mean'"),
    Refused({"hosted": "summed", "mask": True}, f"mask {SUMMED}{LEFT_OUT}"),
]
TRACKING = [
    Refused(
        {"tracker": "st_miss", "n_components": 2, "hosted": "summed"},
        f"The algorithm {SUMMED}one whose clients .* Got st_miss",
    )
]
HOSTS = [
    Refused({}, "must be one for the clients that this node hosts", Exception),
    Refused({"max_share": 0.2, "hosted": "summed"}, SUMMED),
]
NODES = [Refused({"hosted": "stacked"}, "Every node must be one that hosts clients where hosted='stacked'. Got")]
ALGORITHM = [
    Refused(
        {"algorithm": LocalPower(), "local_step": 3}, "Every parameter of local_power .* Did you mean 'local_steps'?"
    ),
    Refused({"algorithm": "uda(tol=1e-3)"}, "Every parameter of uda must be among oversample"),
    Refused({"algorithm": "dr_svd", "patience": 2}, "Every parameter of dr_svd must be among oversample"),
    Refused({"algorithm": "faps", "penalty": "mine"}, "penalty of faps must be .*paper.*measured.* Got 'mine'"),
    Refused(
        {"algorithm": "exact_per_pca", "gain_tol": 1e-5, "acceleration": "none"},
        "gain_tol of exact_per_pca must be 0 where acceleration is 'none'",
    ),
    Refused({"algorithm": "triple_pca", "local_components": "auto"}, "local_components of triple_pca must be a whole"),
    Refused(
        {"algorithm": "triple_pca", "threshold": 0.5}, "threshold of triple_pca must be a finite number of at least 1"
    ),
    Refused(
        {"algorithm": "triple_pca", "inner_steps": 0}, "inner_steps of triple_pca must be a whole number of at least 1"
    ),
    *[
        Refused({"algorithm": "exact_per_pca", "local_components": value}, sentence)
        for value, sentence in (
            (-1, f"{OWN}must be a whole number of at least 0. Got -1."),
            (
                1.5,
                "must be a whole number of at least 0, or a mapping from clients to such numbers. Got 1.5. Write {",
            ),
            ("three", "or a mapping from clients to such numbers. Got 'three'."),
            ({}, "must be a whole number of at least 0, or a mapping .* Got {}."),
            ({0: -1}, f"{OWN}for client 0 must be a whole number of at least 0. Got -1."),
            ({"Bonn": 2.5}, "for client 'Bonn' must be a whole number of at least 0. Got 2.5."),
            ({-1: 2}, f"Every client in {OWN}must be a whole number .* Got -1. Name clients by"),
            ({"": 2}, "Got ''. Name clients by position, by the name of their site, or all that are left as 'others'."),
        )
    ],
]
TRACKER = [
    *[
        Refused(
            {"detect": True, "alarm_rate": rate},
            "alarm_rate of st_miss must be a finite number of at least 1e-09 and at",
        )
        for rate in (0.0, 0.5, "often")
    ],
    *[
        Refused(
            {"monitor": True, **given},
            "monitor of st_miss must be given with detect=True, and without a thresh",
        )
        for given in ({}, {"detect": True, "threshold": 1.0})
    ],
]
MASKS = [
    Refused({"threshold": 0.4}, "threshold of the masks must be a finite number of at least 0.5"),
    Refused({"threshold": 1.0}, "at most 0.99"),
    Refused({"bound": 0.0}, "bound of the masks must be"),
    Refused({"bound": np.inf}, "bound of the masks must be a finite number"),
    Refused({"neighbours": 1}, "neighbours of the masks must be a whole number of at least 2"),
    Refused({"neighbours": 7}, "neighbours of the masks must be even. Got 7. Use 8."),
    Refused({"self_masks": "no"}, "self_masks of the masks must be one of True, False. Got 'no'"),
]
BUDGETS = [Refused({"colluding": -1}, "colluding of dp must be a whole number of at least 0")]
CLIENT = [
    Refused({"allow": ["krilov"]}, "must be .* Did you mean 'krylov'"),
    *[Refused({"min_rows": least}, "must be .* Got .* Choose") for least in (0, 1.5)],
    *[Refused({name: -1.0}, "The node's own bound on") for name in ("min_noise", "max_clip")],
    Refused({"memory_dir": "anywhere"}, "memory_dir must be used with the node's context"),
    Refused({"output_dir": "anywhere"}, "output_dir must be used with the node's context"),
    Refused({"min_row": 5}, "Got 'min_row'. Did you mean 'min_rows'?"),
]
APP = [
    Refused({"max_rnak": 5}, "Every parameter of the rules of a node must be among allow, min_rows"),
    Refused({"min_rows": 0}, "min_rows must be a whole number of at least 1. Got 0."),
]
PROFILE = [
    *[
        Refused(
            {"profile": profile, "trusted_keys": "/k", rule: value},
            f"{rule} in the profile {profile} must be a whole number of at least 20",
        )
        for profile in ("masked", "private")
        for rule, value in (("min_rows", 19), ("min_change", None))
    ],
    Refused({"profile": "masked"}, "used with trusted_keys"),
    Refused({"profile": "secret"}, "profile must be one of"),
]
NODE_CONFIG = [
    Refused(config, "A rule of this node must be spelt as it is known")
    for config in ({"min_rows": 5}, {"min-row": 5}, {"Masked-Only": True}, {"allowed": "ssi"})
]
RAY = [
    *[
        Refused({"clients_per_node": many}, "clients_per_node must be a whole number of at least 1. Got")
        for many in (0, -1, True, 2.5, "many")
    ],
    *[
        Refused({"num_cpus_per_client": cpus}, "num_cpus_per_client must be a finite number of at least 0.01. Got")
        for cpus in (0.0, -1, True, float("nan"), "2")
    ],
]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "simulate": (ran, SIMULATE),
    "estimator": (fitted, ESTIMATOR),
    "estimator, before it is fitted": (unfitted, UNFITTED),
    "estimator, afterwards": (back, FITTED),
    "strategy": (strategy, STRATEGY),
    "strategies by name": (named, STRATEGIES),
    "standardize": (Standardize, STANDARDIZE),
    "tracking": (TrackingStrategy, TRACKING),
    "nodes that host clients": (over_hosts, HOSTS),
    "nodes that are clients": (over_nodes, NODES),
    "algorithm": (make, ALGORITHM),
    "tracker": (STMiss, TRACKER),
    "masks": (MaskedSums, MASKS),
    "budget": (budget, BUDGETS),
    "client": (client, CLIENT),
    "app": (app, APP),
    "profile": (profile, PROFILE),
    "node-config": (node_config, NODE_CONFIG),
    "ray": (Ray, RAY),
}


@pytest.mark.parametrize("door", DOORS)
def test_what_is_refused_is_said_in_this_sentence(door: str) -> None:
    opened, table = DOORS[door]
    with in_a_run():
        faults = [fault for refused in table if (fault := refused.fault(opened))]
    assert not faults, "\n".join(faults)
