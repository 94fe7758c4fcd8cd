"""The report of a run, as one HTML file without external resources."""

from flower_pca.report.page import pictures, write

__all__ = ["pictures", "write"]
