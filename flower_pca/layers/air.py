"""AirChannel: a simulation of clients that transmit at the same time, so that the server receives a noisy sum.

The layer does not change the clients' answers. The server applies fading and noise to the answers that it receives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flower_pca.base import checks, labels
from flower_pca.base import spec as specs
from flower_pca.base.errors import ConfigError
from flower_pca.core.layer import Layer
from flower_pca.core.stage import Arrays


@dataclass(frozen=True, kw_only=True)
class AirChannel(Layer):
    """A layer that simulates analog transmission: all clients send at once, and the server receives a noisy sum.

    The server receives sum_k g_k x_k + W. W has independent N(0, noise_std^2) entries, which are drawn anew for
    every message. Client k divides its answer by h_k, its estimate of the gain of its channel. The true gain is
    h_k + e_k with e_k ~ N(0, gain_error^2), so g_k = 1 + e_k / h_k. If gain_error is 0, the inversion is perfect
    and g_k = 1.

    x_k is the answer from client k. Only matrices are sent over this channel. Counts and other numbers are
    sent digitally, and arrive unchanged. All random numbers are determined by the seed and the number of the
    message, so a run that continues from a checkpoint gets the same noise.

    Parameters
    ----------
    noise_std : float
        The standard deviation of each entry of W, in the units of X'X (not divided by the number of rows).
    seed : int, default=0
        The seed of the noise and the gain errors.
    gain : float or tuple of float, default=1.0
        h_k: one number for all clients, or a number for each client in the order of their keys.
    gain_error : float, default=0.0
        The standard deviation of e_k, the error of a client's estimate of its gain.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import AirChannel, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("fed_oapm", sites, n_components=2, center=False, channel=AirChannel(noise_std=1e-3))
    >>> result.status.outcome.value
    'converged'
    """

    name: ClassVar[str] = "air"

    noise_std: float
    seed: int = 0
    gain: float | tuple[float, ...] = 1.0
    gain_error: float = 0.0

    def __post_init__(self) -> None:
        checks.use_python_numbers(self)
        checks.number(
            "noise_std of the channel", self.noise_std, least=0.0, remedy="Use 0 for a channel without noise."
        )
        checks.integer("seed of the channel", self.seed)
        checks.number("gain_error of the channel", self.gain_error, least=0.0, remedy="Use 0 for perfect inversion.")
        gains = self.gain if isinstance(self.gain, tuple) else (self.gain,)
        for gain in gains:
            checks.number("Every gain of the channel", gain, least=1e-12, remedy="Use 1 for all clients.")
        if not gains:
            raise ConfigError("The list of gains of the channel is empty. Use gain=1 for all clients.")

    @classmethod
    def of(cls, spec: object) -> AirChannel | None:
        """Return the channel from an instance or a string such as "air(noise_std=0.1)". Return None for None."""
        rule = 'an AirChannel, or a string such as "air(noise_std=0.1)"'
        return specs.instance(cls, spec, "air", rule, what="channel")

    @property
    def mark(self) -> str:
        return repr(self)

    def open_answer(self, arrays: Arrays, *, number: int, position: int | None) -> Arrays:
        """Return the answer from the client at this position after fading.

        If `position` is None, `arrays` is the sum of all answers, and the result is this sum with noise on its
        matrices.
        """
        if position is not None:
            return self._fade(arrays, number, position)
        rng = np.random.default_rng([self.seed, number])
        heard = dict(arrays)
        for name in sorted(arrays):
            if np.ndim(arrays[name]) == 2:
                noise = rng.standard_normal(arrays[name].shape)
                heard[name] = arrays[name] + self.noise_std * noise
        return heard

    def _fade(self, arrays: Arrays, number: int, position: int) -> Arrays:
        """Return a client's answer with its matrices multiplied by g_k. `position` is k, the index of the client."""
        gain = self.gain
        if isinstance(gain, tuple):
            if position >= len(gain):
                raise ConfigError(
                    f"The channel has {labels.count(len(gain), 'gain')}, but the run has at least {position + 1} "
                    "clients. Give one gain for each client, or one number for all clients."
                )
            gain = gain[position]
        if self.gain_error == 0.0:
            return arrays
        rng = np.random.default_rng([self.seed, number, position])
        error = rng.standard_normal() * self.gain_error / gain
        faded = {name: a * (1.0 + error) for name, a in arrays.items() if a.ndim == 2}
        return {**arrays, **faded}
