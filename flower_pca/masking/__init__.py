"""Masked sums: the server learns what clients send together, and nothing of what one of them sends.

After Bonawitz et al. 2017, with keys that are fresh for every sum; see docs/masked-sums.md. The
halves do no input or output and never see Flower. What needs cryptography is imported when a masked
run begins, and only then.
"""

from flower_pca.settings.masks import MaskedSums

__all__ = ["MaskedSums"]
