"""Masked sums: the server learns the sum of the clients' answers, but no individual answer.

The protocol follows Bonawitz et al. 2017, with new keys for every sum: see docs/masked-sums.md. The client's
half and the server's half do no input or output and do not depend on Flower. The package cryptography is
imported only when a masked run begins.
"""

from flower_pca.settings.masks import MaskedSums

__all__ = ["MaskedSums"]
