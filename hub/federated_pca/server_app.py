"""The server's side: that of flower_pca, which pyproject.toml's run-config sets up."""

from flower_pca.app import server_app as app

__all__ = ["app"]
