"""Find likely mistakes in data, and describe them in hints: sentences that name the line or the column.

`hints_of(tables)` returns the hints of all kinds.
"""

from flower_pca.hints.look import hints_of as hints_of
