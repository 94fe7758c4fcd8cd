"""WithPCA: a NumPyClient that trains a model and also answers PCA messages, for an app with a client_fn."""

from __future__ import annotations

from flower_pca import wire
from flower_pca.base.errors import ConfigError
from flower_pca.base.linalg import Array
from flower_pca.clients.base import PCAClient
from flower_pca.clients.numpy_client import NumPyClient


class WithPCA(NumPyClient):
    """A client that combines a training client and a PCA client.

    The PCA client gets the messages of PCA strategies, and the training client gets all other messages.

    Parameters
    ----------
    training : NumPyClient
        The app's own client.
    pca : PCAClient
        The client that answers PCA.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr.client import NumPyClient
    >>> from flower_pca.clients import PCAClient, WithPCA
    >>> X = np.random.default_rng(0).standard_normal((60, 6))
    >>> def client_fn(context):
    ...     return WithPCA(NumPyClient(), PCAClient(X, context=context)).to_client()
    """

    def __init__(self, training: NumPyClient, pca: PCAClient) -> None:
        for name, client, kind in (("training", training, NumPyClient), ("pca", pca, PCAClient)):
            if not isinstance(client, kind):
                raise ConfigError(
                    f"{name} must be a {kind.__name__}, not a {type(client).__name__}. Pass the client itself, "
                    "without to_client()."
                )
        self._training, self._pca = training, pca

    def get_parameters(self, config: wire.Config) -> list[Array]:
        """Return the parameters of the training client."""
        return list(self._training.get_parameters(config))

    def get_properties(self, config: wire.Config) -> wire.Config:
        """Return the properties of both clients."""
        return {**self._training.get_properties(config), **self._pca.get_properties(config)}

    def fit(self, parameters: list[Array], config: wire.Config) -> tuple[list[Array], int, wire.Config]:
        """Answer a PCA message, or train the model."""
        return self._client_for(config).fit(parameters, config)

    def evaluate(self, parameters: list[Array], config: wire.Config) -> tuple[float, int, wire.Config]:
        """Answer a PCA evaluation, or evaluate the model."""
        return self._client_for(config).evaluate(parameters, config)

    def _client_for(self, config: wire.Config) -> NumPyClient:
        if wire.is_request(config):
            return self._pca
        return self._training
