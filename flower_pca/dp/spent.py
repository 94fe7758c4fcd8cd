"""The privacy cost of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spent:
    """The privacy cost of a run.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee of differential privacy for every row, against a server that sees all messages.
    clip : float
        The norm to which rows were clipped.
    noise : float
        The minimum standard deviation of the noise on each number that the server sees.
    messages : int
        The number of answered messages, including the first message, for mean, scale and count.
    shared : bool
        Whether the clients shared the noise on masked sums. If so, epsilon is the cost of the sums, and holds if at
        most as many clients collude as the run allowed for. If not, each client added all of the noise.
    among : int
        The number of clients that together add noise of this deviation. It is 1 if the noise is not shared.
    frame_noise : float
        The standard deviation of the noise on each number in an answer to the first message, for mean, scale and count.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> result = simulate("covariance", sites, n_components=2, dp="dp(epsilon=1.0, delta=1e-6, clip=20.0)")
    >>> print(result.privacy)
    epsilon 1, delta 1e-06; noise of deviation 1781 on each answer
    """

    epsilon: float
    delta: float
    clip: float
    noise: float
    messages: int
    shared: bool = False
    among: int = 1
    frame_noise: float = 0.0

    def __str__(self) -> str:
        where = "each sum, shared among clients" if self.shared else "each answer"
        noise = f"noise of deviation {self.noise:.4g} on {where}"
        return f"epsilon {self.epsilon:.4g}, delta {self.delta:g}; {noise}"
