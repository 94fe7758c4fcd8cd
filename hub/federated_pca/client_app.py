"""The client's side: that of flower_pca, which pyproject.toml's run-config sets up."""

from flower_pca.app import client_app as app

__all__ = ["app"]
