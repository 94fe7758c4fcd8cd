"""AirChannel: what the receiver of signals that clients send at once gets, their noisy sum.

A layer of the server alone: what clients send is the same, and what is heard of it is made here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flower_pca.base import checks
from flower_pca.base import spec as specs
from flower_pca.base.errors import ConfigError
from flower_pca.core.layer import Layer
from flower_pca.core.stage import Arrays


@dataclass(frozen=True, kw_only=True)
class AirChannel(Layer):
    """Analog transmission over the air: all send at once, and the receiver hears sum_k g_k x_k + W.

    W has independent N(0, noise_std^2) entries, fresh in every message. Client k divides what it
    sends by the gain h_k that it believes its channel to have; the true one is h_k + e_k with e_k ~
    N(0, gain_error^2), so that g_k = 1 + e_k / h_k. With gain_error = 0 the inversion is perfect,
    and g_k = 1.

    Only matrices are sent that way. Counts and single numbers are digital: they arrive as they are.
    Everything is drawn from the seed and the number of the message, so a run that is resumed hears
    the same noise.

    Args:
        noise_std: Standard deviation of an entry of W. X'X is not divided by the number of rows;
            nor is the noise.
        seed: Seed of noise and gain errors.
        gain: h_k, one number for all clients or one for each in the order of their keys.
        gain_error: Standard deviation of the error in the gain that a client inverts.
    """

    name: ClassVar[str] = "air"

    noise_std: float
    seed: int = 0
    gain: float | tuple[float, ...] = 1.0
    gain_error: float = 0.0

    def __post_init__(self) -> None:
        remedy = "Use 0 for a silent one."
        checks.number("noise_std of the channel", self.noise_std, least=0.0, remedy=remedy)
        checks.integer("seed of the channel", self.seed)
        remedy = "Use 0 for perfect inversion."
        checks.number("gain_error of the channel", self.gain_error, least=0.0, remedy=remedy)
        if isinstance(self.gain, tuple):
            gains = self.gain
        else:
            gains = (self.gain,)
        for gain in gains:
            remedy = "Use 1 for all clients."
            checks.number("Every gain of the channel", gain, least=1e-12, remedy=remedy)
        if not gains:
            raise ConfigError(
                "The gains of the channel",
                must="there",
                got="none",
                then="Use 1 for all clients.",
            )

    @classmethod
    def of(cls, given: object) -> AirChannel | None:
        """From an instance, a string such as "air(noise_std=0.1)", or None."""
        if given is None or isinstance(given, cls):
            return given
        return specs.bind(
            given,
            {"air": cls, "AirChannel": cls},
            what="channel",
            rule='an AirChannel, or a string such as "air(noise_std=0.1)"',
        )()

    @property
    def mark(self) -> str:
        return repr(self)

    def open(self, arrays: Arrays, *, number: int, position: int | None) -> Arrays:
        if position is None:
            return self._with_noise(arrays, number)
        return self._fade(arrays, number, position)

    def _fade(self, arrays: Arrays, number: int, position: int) -> Arrays:
        """A client's answer as its channel passes it on; `position` among the clients' keys."""
        gain = self._gain_of(position)
        if self.gain_error == 0.0:
            return arrays
        rng = np.random.default_rng([self.seed, number, position])
        error = rng.standard_normal() * self.gain_error / gain
        return {name: a * (1.0 + error) if a.ndim == 2 else a for name, a in arrays.items()}

    def _gain_of(self, position: int) -> float:
        if not isinstance(self.gain, tuple):
            return self.gain
        if position >= len(self.gain):
            raise ConfigError(
                "The gains of the channel",
                must=f"at least {position + 1}",
                got=len(self.gain),
                then="Give one for each client, or one number for all.",
            )
        return self.gain[position]

    def _with_noise(self, total: Arrays, number: int) -> Arrays:
        """The sum with the noise of this message; what is no matrix travels beside it."""
        rng = np.random.default_rng([self.seed, number])
        heard = dict(total)
        for name in sorted(total):
            if np.ndim(total[name]) == 2:
                noise = rng.standard_normal(total[name].shape)
                heard[name] = total[name] + self.noise_std * noise
        return heard
