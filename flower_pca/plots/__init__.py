"""Pictures of a result, by name: what `plot` draws, and what a report shows.

`PICTURES` is the table. A picture is of one kind of result, and may need what only some results
have, or the rows of the clients: `available` says which there are of a result.
"""

from flower_pca.plots.drawing import available, draw, figure, telling, with_rows
from flower_pca.plots.needs import Result, Shards
from flower_pca.plots.pictures import PICTURES, Picture

__all__ = ["PICTURES", "Picture", "Result", "Shards", "available", "draw", "figure", "telling", "with_rows"]
