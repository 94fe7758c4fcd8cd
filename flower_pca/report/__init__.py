"""The report of a run, as one HTML file without external resources."""

from flower_pca.report.page import pictures_as_html, write

__all__ = ["pictures_as_html", "write"]
