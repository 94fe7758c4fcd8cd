"""NumPyClient: the class of Flower's older API, or a replacement if Flower no longer has the class.

Flower has deprecated this API. Once it is removed, nodes that use the message API work as before, but apps with
a client_fn can no longer be made.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.client import NumPyClient as NumPyClient
else:
    try:
        from flwr.client import NumPyClient
    except ImportError:
        from flower_pca.base.errors import ConfigError

        class NumPyClient:
            """A replacement for Flower's class that cannot make a client."""

            def to_client(self) -> Any:
                """Refuse to make a client, because this version of Flower has no such API."""
                raise ConfigError(
                    "This version of Flower no longer supports client_fn. Use flower_pca.clients.client_app(load), "
                    "where load returns the rows of a node."
                )
