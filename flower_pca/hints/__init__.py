"""Hints: sentences about what looks like a mistake in data, each naming the line or the column.

`hints.of(tables)` collects the hints of all kinds.
"""

from flower_pca.hints.look import of as of
