"""The settings of a run, with their names in Python, at the command line and in a run-config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

FLAG: Final = (True, False)
# Each of these words as `n_components` names a stage that finds the number of components.
COUNTED: Final = {"signal": "the components above noise", "shared": "the components that most clients share"}
COUNTING: Final = tuple(COUNTED)


@dataclass(frozen=True)
class Setting:
    """A setting of a run.

    Parameters
    ----------
    name : str
        The name in Python.
    default
        The value if the setting is not given.
    words : str
        The description of the setting in the help of the command line and in the documentation of run-configs.
    choices : tuple, default=()
        The allowed values, if the setting has only a few.
    metavar : str or None, default=None
        The placeholder of the value in the help of the command line.
    """

    name: str
    default: Any
    words: str
    choices: tuple[Any, ...] = ()
    metavar: str | None = None

    @property
    def key(self) -> str:
        """The name in a run-config."""
        return self.name.replace("_", "-")

    @property
    def value(self) -> str | int | float | bool:
        """The default in a run-config, where "" replaces None and an empty tuple."""
        return "" if self.default is None or self.default == () else self.default

    @property
    def option(self) -> str:
        """The name at the command line."""
        return "--components" if self.name == "n_components" else f"--{self.key}"


_DECLARED: Final = (
    Setting("n_components", 2, "how many components; or the fraction of the variance to explain, such as 0.9"),
    Setting("mask", False, 'whether the server sees only sums over nodes; or "masks(neighbors=20)"', metavar="SPEC"),
    Setting(
        "center", None, "whether to subtract the mean; if left out, what the algorithm does by default", (*FLAG, None)
    ),
    Setting(
        "scale",
        None,
        'how columns are scaled: "std", "max_abs" or "genotype" (default: not at all)',
        (None, "std", "max_abs", "genotype"),
    ),
    Setting(
        "missing",
        "error",
        'how missing values are handled: "error", "local_mean" or "mean"',
        ("error", "local_mean", "mean"),
    ),
    Setting("columns", None, "the columns to use, in the order of the result; if left out, all", metavar="NAMES"),
    Setting("categorical", None, "text columns; each of their levels becomes a column", metavar="COLUMNS"),
    Setting("seed", 0, "seed of all random numbers", metavar="S"),
    Setting("reconstruction_error", False, "whether to measure the reconstruction error at the end", FLAG),
    Setting(
        "monitor",
        False,
        'whether to compute limits of T2 and SPE from the rows of all sites; nodes must allow "monitor"',
        FLAG,
    ),
    Setting(
        "standard_errors",
        False,
        'whether to compute standard errors of loadings and variances; nodes must allow "standard_errors"',
        FLAG,
    ),
    Setting(
        "explain",
        (),
        "columns outside the PCA, such as age,site; the result shows how much of each component they explain",
        metavar="COLUMNS",
    ),
    Setting(
        "adjust",
        (),
        "columns whose influence is removed before the PCA, such as age,sex; name site to subtract each site's means",
        metavar="COLUMNS",
    ),
    Setting(
        "harmonize", None, '"combat" to give each column the same location and scale at all sites', (None, "combat")
    ),
    Setting(
        "keep",
        (),
        "with harmonize: columns such as age whose influence is kept, although they differ between sites",
        metavar="COLUMNS",
    ),
    Setting(
        "max_share",
        None,
        "the maximum share of all squares and of all rows that one client may contribute, such as 0.1 or 10%",
        metavar="SHARE",
    ),
    Setting(
        "variants",
        None,
        'limits for genetic variants, such as "variants(maf=0.01, call=0.98, ambiguous=False)"',
        metavar="SPEC",
    ),
    Setting(
        "highly_variable",
        None,
        'how to select the genes that vary most over all sites, such as "seurat(2000)"; read cells with log=True',
        metavar="SPEC",
    ),
    Setting("dp", None, 'the privacy budget, such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)"', metavar="SPEC"),
    Setting(
        "wire",
        "float64",
        "precision of the numbers in messages: float64, float32, float16, or auto for the lowest that tol allows",
        ("auto", "float64", "float32", "float16"),
    ),
    Setting(
        "partitioned_by", "rows", '"columns" if sites have different columns of the same people', ("rows", "columns")
    ),
)
SETTINGS: Final = {setting.name: setting for setting in _DECLARED}
