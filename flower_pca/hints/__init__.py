"""Hints: what looks like a mistake in data, in sentences that name the line or the column.

`hints.of(tables)` looks for all of it.
"""

from flower_pca.hints.look import of as of
