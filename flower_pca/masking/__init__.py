"""Masked sums: the server learns the sum of what clients send, but not what a single client has sent.

The protocol follows Bonawitz et al. 2017, with new keys for every sum: see docs/masked-sums.md. The client's
half and the server's half do no input or output and do not depend on Flower. The package cryptography is
imported only when a masked run begins.
"""

from flower_pca.settings.masks import MaskedSums

__all__ = ["MaskedSums"]
