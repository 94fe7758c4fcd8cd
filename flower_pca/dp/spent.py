"""What a run has cost in privacy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spent:
    """Say what a run has cost in privacy.

    Attributes
    ----------
    epsilon, delta : float
        What holds for every row, against a server that sees all that it is sent.
    clip : float
        The norm to which rows were clipped.
    noise : float
        The deviation of the noise on each number that the server sees: at least so much.
    messages : int
        Answered messages, that of the frame included.
    shared : bool
        Whether the clients had it together, on sums that were masked; else each has added it alone. Then epsilon is
        that of the sums, and holds if no more clients collude than the run allowed for.
    among : int
        How many clients alone have all of that noise together: one, where it is not shared.
    frame_noise : float
        The deviation of the noise on each number of the message that measured mean, scale and count.

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
