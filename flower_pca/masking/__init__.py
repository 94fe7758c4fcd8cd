"""Masked sums: the server learns the sum of what clients send, but no single client's part.

The protocol follows Bonawitz et al. 2017, with new keys for every sum: see docs/masked-sums.md. The two
halves do no input or output and do not know Flower. The package cryptography is imported only when a
masked run begins.
"""

from flower_pca.settings.masks import MaskedSums

__all__ = ["MaskedSums"]
