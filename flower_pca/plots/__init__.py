"""Pictures of results by name, for the method `plot` and for reports.

`PICTURES` is the table of all pictures. Each picture belongs to one kind of result, and may need fields that only some
results have, or the rows of the clients. `available` returns the pictures that can be drawn from a result.
"""

from flower_pca.plots.drawing import available, draw, figure, pictures_for_report, with_rows
from flower_pca.plots.needs import Result, Shards
from flower_pca.plots.pictures import PICTURES, Picture

__all__ = ["PICTURES", "Picture", "Result", "Shards", "available", "draw", "figure", "pictures_for_report", "with_rows"]
