"""What is asked of a federation, by names of the registry: whatever is listed there can be run, alone or at once."""

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import fake_grid
from results import assert_same_bits, assert_same_steps

from flower_pca import ConfigError, PCAResult, Stream, TrackingResult, registry, strategies
from flower_pca.clients import client_app

SHORT = {"max_rounds": 2, "products": 1, "first_products": 1}  # settings for a run of a few messages
BATCH = 30  # rows of a stream at a step
NOISE_SEED = 3  # the seed of the nodes, as in the app of the trial


@dataclass(frozen=True)
class AskedThere:
    """A run of an algorithm, or of a tracker at nodes whose rows are streams.

    Args:
        name: In the registry.
        shards: The rows of all nodes.
        mask: Whether it is masked.
        seed: The run's own.
    """

    name: str
    shards: tuple
    mask: bool = False
    seed: int = 3

    @property
    def tracks(self):
        """Whether it is of a tracker."""
        return self.name in registry.TRACKERS

    @property
    def strategy(self):
        """The name of its strategy's class."""
        if self.tracks:
            return "TrackingStrategy"
        return "PCAStrategy"

    @property
    def parameters(self):
        """What that takes."""
        stage = registry.STAGES[self.name]
        own = ", ".join(f"{name}={value}" for name, value in SHORT.items() if hasattr(stage, name))
        given = {"n_components": 2, "seed": self.seed, "mask": self.mask, "min_nodes": len(self.shards)}
        if self.tracks:
            return {"tracker": f"{self.name}({own})", "steps": 2, **given}
        return {"algorithm": f"{self.name}({own})", **given}

    def load(self, context):
        """The rows of a node, or its stream."""
        rows = self.shards[context.node_config["partition-id"]]
        if self.tracks:
            return Stream(rows, batch=BATCH)
        return rows

    @functools.cached_property
    def alone(self):
        """Its result where no other run is, and how many files it leaves the nodes; None where it is refused."""
        with fake_grid.in_a_run(), tempfile.TemporaryDirectory() as folder:
            rules = {"missing": "mean", "memory_dir": folder, "noise_seed": NOISE_SEED}
            grid = fake_grid.FakeGrid(client_app(self.load, allow=[self.name], **rules), len(self.shards))
            try:
                result = getattr(strategies, self.strategy)(**self.parameters).fit(grid)
            except ConfigError:
                return None
            return result, len(list(Path(folder).glob("*-run-*.npz")))

    @property
    def remembers(self):
        """Whether nodes keep something of it from message to message."""
        return self.alone is not None and self.alone[1] > 0

    def begin(self, federation):
        """Start it, to stand still after about half of its messages, when its nodes have something to keep."""
        messages = len(self.alone[0].history)
        half = min(messages // 2 + 1, messages - 1)
        if self.tracks:
            return federation.run(self.strategy, hold=half, batch=BATCH, **self.parameters)
        return federation.run(self.strategy, hold=half, **self.parameters)

    def assert_as_alone(self, run):
        """Its result is, to the last bit, that of `alone`."""
        if self.tracks:
            assert_same_steps(run.result(TrackingResult), self.alone[0])
        else:
            assert_same_bits(run.result(PCAResult), self.alone[0])


def remembering(shards):
    """Of each kind of result, and of steps, a run of which nodes keep something; some of them masked, too.

    Masked are those that are no good where that is lost, and trackers.
    """
    every = [AskedThere(name, shards) for name in (*registry.ALGORITHMS, *registry.TRACKERS)]
    kinds: dict[type | None, AskedThere] = {}
    for asked in every:
        kind = None if asked.tracks else registry.TABLE[asked.name].result
        if kind not in kinds and asked.remembers:
            kinds[kind] = asked
    plain = list(kinds.values())
    masked = [
        AskedThere(asked.name, shards, mask=True)
        for asked in plain
        if asked.tracks or registry.ALGORITHMS[asked.name].remembers
    ]
    return plain + [asked for asked in masked if asked.remembers]
