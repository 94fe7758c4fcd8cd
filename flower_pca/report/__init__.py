"""A run as one HTML file, which needs nothing from elsewhere."""

from flower_pca.report.page import pictures, write

__all__ = ["pictures", "write"]
