"""NumPyClient: the class of Flower's older API, as long as Flower has it.

Flower calls that API deprecated. Without it, nodes of the message API answer as before. Only an app with
a client_fn cannot be made any more.
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
            """The replacement if Flower no longer has the class."""

            def to_client(self) -> Any:
                """Refuse to make a client, because this version of Flower has no such API."""
                raise ConfigError(
                    "This version of Flower has no client_fn any more. Use flower_pca.clients.client_app(load), whose "
                    "load returns the rows of a node."
                )
