"""PCAConfig: the settings of a run, as one frozen value that is checked and documented here.

`assembly` lists all algorithms, and uses `compatible` to check whether the settings work together.
`assembly.run` makes a run from a configuration, for any transport. `assembly.config` makes a
configuration from its short form, in which algorithm, masks, budget and channel may be strings.
Checkpoints and results contain `plain_settings()`, from which `assembly.config` makes the same configuration
again. A configuration never changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, TypedDict

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.labels import clean_name
from flower_pca.base.options import option
from flower_pca.base.settings import COUNTING, SETTINGS
from flower_pca.base.shown import brief, shown
from flower_pca.core import compatible
from flower_pca.core.algorithm import Algorithm, Iterative
from flower_pca.core.layer import Layer
from flower_pca.names.columns import enumeration, split_names
from flower_pca.names.levels import AsGiven, Coding, Levels, plain_levels, read_levels, source_of
from flower_pca.names.ranges import Ranges
from flower_pca.rows.covariates import SITE, Covariates
from flower_pca.settings.bits import BITS, fewest_bits
from flower_pca.settings.budget import DP
from flower_pca.settings.highly_variable import HighlyVariable
from flower_pca.settings.masks import MaskedSums
from flower_pca.settings.variants import Variants

COMPONENTS: Final = 2  # the default number of components


@dataclass(frozen=True)
class PCAConfig:
    """All settings of a run. The same object serves simulations and deployments.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm, with its hyper-parameters: see `make`.
    n_components : int, float, "signal" or "shared", default=2
        The number of components, or the fraction of the total variance, in (0, 1), that the components must explain.
        The short form also accepts "95%". "signal" keeps the components that stand out from noise (see
        `stages.signal`). "shared" keeps the components that most clients have in common (see
        `algorithms.personal.shared`). Nodes serve "signal" and "shared" only if their `allow` lists these words.
    center : bool or None, default=None
        Whether to subtract the mean of all rows. By default, the rows are centered if `scale` is given. If it is not,
        the algorithm decides: most algorithms center the rows, and robust algorithms do not.
    scale : None or {"std", "max_abs", "genotype"}, default=None
        How to scale the columns: "std" divides by the standard deviation, "max_abs" by the largest absolute value.
        "genotype" is for counts of an allele, 0 to 2: it divides by sqrt(2 p (1 - p)), where the frequency p is half
        the mean of the column.
    missing : {"error", "local_mean", "mean"}, default="error"
        What to do with missing values, which are NaN: raise an error, or replace them by the mean of the column at the
        same client ("local_mean") or at all clients ("mean").
    columns : tuple of str or None, default=None
        The names of the columns to use, in the order of the result. The short form is a string of names, separated by
        commas. By default, all clients must have the same columns. The columns are used in the order of their sorted
        names, or by position if no client has names.
    categorical : Levels or None, default=None
        The names of text columns. Each text column is replaced by one column for each of its levels, such as
        ward=surgery, divided by the square root of the share of rows with this level. With scale="std", the result is
        a factor analysis of mixed data, and with text columns alone, a multiple correspondence analysis. The short form
        is a string of names, separated by commas. A mapping lists the levels of each column, or None for all levels. If
        the list contains "other", rows with an unlisted level count as "other". The new columns come last, unless
        `columns` names the text columns.
    seed : int, default=0
        The seed of all random numbers.
    fraction : float, default=1.0
        The share of the present clients that are asked in each round of the algorithm.
    reconstruction_error : bool, default=False
        Whether the clients measure the reconstruction error at the end.
    monitor : bool, default=False
        Whether clients count the distances of their rows from the components at the end, so that
        `analysis.monitor.Monitor` can compute its limits from all rows. Nodes serve this message only if their `allow`
        lists "monitor".
    standard_errors : bool, default=False
        Whether to compute standard errors of loadings and variances, by one more message at the end: see
        `stages.standard_errors`. Nodes serve this message only if their `allow` lists "standard_errors".
    min_nodes : int, default=1
        The minimum number of clients in every round.
    mask : MaskedSums or None, default=None
        How to mask the clients' answers, so that the server learns only their sums, or None for plain answers. The
        short form is True, or a string such as "masks(neighbors=20)".
    dp : DP or None, default=None
        The privacy budget, or None for no differential privacy. With a budget, clients clip their rows and add noise.
        Each client adds all of the noise, or only a share of the noise if `mask` is given. The algorithm must have a
        bound on the effect of one row. The short form is a string such as "dp(epsilon=1.0, delta=1e-6, clip=10.0)".
    channel : Layer or None, default=None
        The noisy channel over which the server receives sums of answers, or None for an ideal channel. A channel
        requires krylov, ssi or fed_oapm.
    wire : {"float64", "float32", "float16", "auto"}, default="float64"
        The number format of blocks and products on the network. "float32" needs a `tol` of at least 1e-7. "float16",
        which scales each column, needs a `tol` of at least 1e-3. "auto" chooses the smallest format that `tol` allows.
        For `krylov`, `ssi` and `fed_oapm`, "auto" uses an even smaller format in messages in which the rounding does
        not affect the result. "auto" means float64 with `dp`, with a channel, and for algorithms whose clients would
        accumulate rounding errors.
    explain : tuple of str, default=()
        Columns that are not features. The run computes how much of each component they explain. "site" stands for the
        site of a row. Runs without masks always report the share that the sites explain. The short form is a string of
        names, separated by commas. Write a level of a text column as sex=M. Nodes serve only columns that their
        `covariates` list.
    adjust : tuple of str, default=()
        Columns that are not features, such as age. Before the PCA, their effect on all features is removed by least
        squares over the rows of all clients. "site" removes the means of each site. Names are written as in `explain`.
    harmonize : None or {"combat"}, default=None
        "combat" gives each column the same location and scale at all sites before the PCA, by ComBat.
    keep : tuple of str, default=()
        Columns that are not features, such as age, and that may differ between sites. `harmonize` does not remove their
        effect on the features. Names are written as in `explain`.
    max_share : float or None, default=None
        The maximum share of all squares, and of all rows, that one client may contribute, for example 0.1 or "10%". The
        statistics of larger clients are scaled down. The share must be at least one divided by the number of clients.
        The status of the result reports whether the share limits how far one client can turn the components. The server
        needs the answers of individual clients.
    variants : Variants or None, default=None
        Limits on genetic variants: for the frequency of the rarer allele, and for the share of people with a value.
        One more message counts both over all people together. The short form is a string such as "variants(maf=0.01,
        call=0.98, ambiguous=False)".
    highly_variable : HighlyVariable or None, default=None
        The number of highly variable genes to use, and the method that selects them. One more message about all cells
        together selects these genes, as scanpy's highly_variable_genes does. The short form is "seurat(2000)" or
        "cell_ranger(2000)". The entries must be logarithms of counts: see `cells`.
    partitioned_by : {"rows", "columns"}, default="rows"
        "rows" means that clients hold the same columns of different people, and "columns" that they hold different
        columns of the same people. With "columns", each client centers and scales its columns, its loadings stay at
        the client, and all clients and the server see the scores. "columns" requires an algorithm that needs only
        products, and nodes whose rules allow it.

    Raises
    ------
    ConfigError
        If a value is not valid, or if two settings do not work together.

    Examples
    --------
    >>> import numpy as np
    >>> from flower_pca import Krylov, PCAConfig, simulate
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.standard_normal((60, 6)) * [6, 5, 1, 1, 1, 1] for _ in range(3)]
    >>> config = PCAConfig(Krylov(), n_components=2, scale="std")
    >>> simulate(config, sites).components_.shape
    (2, 6)
    """

    algorithm: Algorithm[Any]
    _: KW_ONLY
    n_components: int | float | str = COMPONENTS
    center: bool | None = None
    scale: str | None = None
    missing: str = "error"
    columns: tuple[str, ...] | None = None
    categorical: Levels | None = None
    seed: int = 0
    fraction: float = 1.0
    reconstruction_error: bool = False
    monitor: bool = False
    standard_errors: bool = False
    min_nodes: int = 1
    mask: MaskedSums | None = None
    dp: DP | None = None
    channel: Layer | None = None
    wire: str = "float64"
    partitioned_by: str = "rows"
    explain: tuple[str, ...] = ()
    adjust: tuple[str, ...] = ()
    harmonize: str | None = None
    keep: tuple[str, ...] = ()
    max_share: float | None = None
    variants: Variants | None = None
    highly_variable: HighlyVariable | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        checks.use_python_numbers(self)
        for name, kind in _CLASSES.items():
            given = getattr(self, name)
            if not isinstance(given, kind) and (given is not None or name == "algorithm"):
                raise ConfigError(
                    f"{name} of a PCAConfig must be an instance of {kind.__name__}, not {shown(given)}. To give it as "
                    f"a string, use simulate(..., {name}=...)."
                )
        checks.choices(self, _CHOICES)
        checks.integer("seed", self.seed, most=2**62)
        fraction = checks.parse_share(self.fraction)
        checks.proportion("fraction", fraction)
        checks.integer("min_nodes", self.min_nodes, least=1)
        # numpy numbers become Python numbers, which files can store.
        plain: dict[str, Any] = {"seed": int(self.seed), "fraction": float(fraction)}
        if self.max_share is not None:
            checks.proportion("max_share", share := checks.parse_share(self.max_share))
            plain["max_share"] = float(share)
        if self.columns is not None:
            plain["columns"] = split_names(self.columns)
        for setting in COVARIATES:
            plain[setting] = covariate_names(setting, getattr(self, setting))
        if "columns" in plain:
            beside = {name for setting in COVARIATES for name in plain[setting]} - {SITE}
            plain["columns"] = tuple(name for name in plain["columns"] if name not in beside)
        if self.dp is not None and self.dp.public_ranges:
            plain["columns"] = self._columns_with_ranges(self.dp.public_ranges, plain.get("columns"))
        if plain["keep"] and self.harmonize is None:
            raise ConfigError(
                f"{option('keep')} works only with {option('harmonize')}, because it names what harmonizing must not "
                f"remove. Add {option('harmonize', 'combat')}.",
                setting="keep",
            )
        if SITE in plain["keep"]:
            raise ConfigError(
                f"{option('keep')} cannot contain {SITE}, because harmonizing removes the differences between sites. "
                f"Leave {SITE} out of {option('keep')}.",
                setting="keep",
            )
        if SITE in plain["adjust"] and SITE in plain["explain"]:
            raise ConfigError(
                f"adjust subtracts the means of each site from its rows, so the share between sites would always be "
                f"0. Leave {SITE} out of {option('explain')}."
            )
        if SITE in plain["adjust"] and self.missing == "mean":
            raise ConfigError(
                f"{option('missing', 'mean')} needs the means of all rows, but with adjust each site subtracts its own "
                f"means and does not send them. Use {option('missing', 'local_mean')}.",
                setting="missing",
            )
        if self.variants is not None and self.variants.call and self.missing == "local_mean":
            raise ConfigError(
                f"variants needs call rates, but with {option('missing', 'local_mean')} no site sends how many "
                f"values a variant has. Use {option('missing', 'mean')}, or variants(call=0).",
                setting="missing",
            )
        if plain["adjust"] and self.center is False:
            raise ConfigError(
                "adjust always centers the columns, because it removes what covariates explain about the means. Leave "
                "center out."
            )
        if self.categorical is not None:
            if self.center is False:
                raise ConfigError(
                    f"{option('categorical')} always centers its columns, because each is divided by the square root "
                    f"of the share of its category. Leave {option('center', False)} out.",
                    setting="center",
                )
            plain["categorical"] = read_levels(self.categorical)
        if not (isinstance(self.n_components, str) and self.n_components in COUNTING):
            plain["n_components"] = checks.components(self.n_components, words=COUNTING)
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def _columns_with_ranges(self, ranges: Ranges, columns: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the columns of the run: the columns for which the privacy budget has ranges.

        Raise ConfigError if this contradicts `center` or `columns`.
        """
        if self.center is False:
            raise ConfigError(
                f"If dp has ranges, the middle of each column's range is subtracted from the column, so "
                f"{option('center', False)} is not possible. Leave center out.",
                setting="center",
            )
        names = tuple(name for name, *_ in ranges)
        if columns is not None and set(columns) != set(names):
            got = enumeration(sorted(set(columns) ^ set(names)))
            raise ConfigError(
                f"If dp has ranges, a run uses exactly the columns that have ranges, but {option('columns')} differs "
                f"in {got}. Leave columns out, or give ranges for the same columns.",
                setting="columns",
            )
        return columns or names

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name. `compatible` checks whether they work together."""
        on = {name: value for name in _OPTIONS if (value := getattr(self, name)) != _FIELDS[name]}
        if isinstance(self.n_components, int):  # A number works with every other option.
            on.pop("n_components", None)
        if self.wire == "auto":  # "auto" works with every other option.
            del on["wire"]
        if isinstance(self.n_components, str):
            on[self.n_components] = True
        return on

    @cached_property
    def coding(self) -> Coding:
        """The coding of text columns as numeric columns, which exists only with `categorical`."""
        assert self.categorical is not None
        return Coding(self.categorical)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The text columns, which are read as text and replaced by columns of their levels."""
        if self.categorical is None:
            return ()
        return self.coding.words

    @cached_property
    def covariates(self) -> Covariates | None:
        """The covariates, which are columns but not features.

        None if the run names no covariates and neither adjusts for sites nor harmonizes them.
        """
        if not (self.explain or self.adjust or self.harmonize):
            return None
        adjusting = [name for name in (self.adjust or self.keep) if name != SITE]
        names = dict.fromkeys([*adjusting, *(name for name in self.explain if name != SITE)])
        if not names and not self.adjust and self.harmonize is None:
            return None
        return Covariates(tuple(names), len(adjusting), within=SITE in self.adjust)

    @property
    def covariate_columns(self) -> tuple[str, ...]:
        """The columns of a table from which the covariates are read."""
        if self.covariates is None:
            return ()
        return tuple(dict.fromkeys(source_of(name) or name for name in self.covariates.names))

    @property
    def columns_and_covariates(self) -> tuple[str, ...] | None:
        """All columns that the run needs, features first, or None if `columns` is not given."""
        if self.columns is None or self.covariates is None:
            return self.columns
        return (*self.columns, *self.covariates.names)

    def with_levels_of_covariates(self, categorical: Mapping[str, tuple[str, ...]]) -> PCAConfig:
        """Return the configuration in which each text covariate is replaced by one covariate for each of its levels."""

        def expand(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(made for name in names for made in categorical.get(name, (name,))))

        changed: dict[str, Any] = {setting: expand(getattr(self, setting)) for setting in COVARIATES}
        return replace(self, **changed)

    @property
    def first_n_components(self) -> int | float:
        """The number of components, or the fraction of the variance, with which the run begins.

        It is 1 if the run finds the number itself.
        """
        if isinstance(self.n_components, str):
            return 1
        return self.n_components

    @property
    def bits(self) -> int:
        """The number of bits for each entry of blocks and products in messages, as far as the configuration fixes it.

        With wire="auto", it is the smallest number that `tol` allows, and a stage may use fewer bits.
        """
        if self.wire != "auto":
            return BITS[self.wire]
        if self.tol is None:
            return 64
        return fewest_bits(self.tol)

    @property
    def tol(self) -> float | None:
        """The tolerance of the algorithm, or None if it has no tolerance or the answers are noisy."""
        noise = self.dp is not None or self.channel is not None
        if isinstance(self.algorithm, Iterative) and not noise:
            return self.algorithm.tolerance
        return None

    @property
    def centered(self) -> bool:
        """Whether the mean is subtracted, as requested or by the algorithm's default."""
        if self.adjust:
            return True
        if self.center is None:  # Scaled columns are centered, because standard deviations refer to the mean.
            return self.algorithm.centers or self.scale is not None or self.categorical is not None
        return bool(self.center)

    def with_coding(self, coding: Coding, columns: tuple[str, ...]) -> PCAConfig:
        """Return the configuration with these columns, and with a coding that lists all levels of the text columns."""
        return replace(self, columns=columns, categorical=coding.value)

    def plain_settings(self) -> dict[str, Any]:
        """Return the settings as plain values in the short form, without the seed of the privacy noise."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"algorithm": self.algorithm.spec, "mask": self.mask and repr(self.mask)}
        values["channel"] = self.channel and repr(self.channel)
        values["variants"] = self.variants and str(self.variants)
        values["highly_variable"] = self.highly_variable and str(self.highly_variable)
        values["dp"] = self.dp and repr(replace(self.dp, noise_seed=None))
        if self.columns is not None:
            values["columns"] = list(self.columns)
        values |= {setting: list(getattr(self, setting)) for setting in COVARIATES}
        if self.categorical is not None:
            values["categorical"] = plain_levels(self.categorical)
        return values

    def check_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Raise ConfigError if the folder of a checkpoint does not exist, or if the run must not have a checkpoint.

        For example, a run that continues from a checkpoint could spend a privacy budget twice.
        """
        checks.parent_exists("the checkpoint", path)
        compatible.check_options({**self.options, "checkpoint": str(path)})


COVARIATES: Final = ("explain", "adjust", "keep")  # settings that name columns that are not features


def covariate_names(setting: str, value: Any) -> tuple[str, ...]:
    """Return the column names in a setting, given as a sequence or as a string of names separated by commas.

    Raise ConfigError if the setting does not name columns, or names a column twice.
    """
    if not value:
        return ()
    names = tuple(value.split(",")) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and clean_name(name) for name in names):
        raise ConfigError(
            f"{setting}={shown(value)} does not name columns. Give names, for example "
            f"{option(setting, ['age', 'site'])}."
        )
    found = tuple(map(clean_name, names))
    if len({*found}) < len(found):
        raise ConfigError(f"{setting}={shown(value)} names a column twice. Name each column once.")
    return found


_CLASSES: Final = {
    "algorithm": Algorithm,
    "mask": MaskedSums,
    "dp": DP,
    "channel": Layer,
    "variants": Variants,
    "highly_variable": HighlyVariable,
}
_FIELDS: Final = {f.name: f.default for f in fields(PCAConfig)}
_CHOICES: Final = {name: setting.choices for name, setting in SETTINGS.items() if setting.choices}
# These settings work with every option, or are checked elsewhere.
_WITHOUT_RULES: Final = ("algorithm", "center", "seed", "min_nodes")
_OPTIONS: Final = tuple(name for name in _FIELDS if name not in _WITHOUT_RULES)


class PCAConfigOptions(TypedDict, total=False):
    """The keywords of a configuration in its short form, without the algorithm: see `PCAConfig`."""

    n_components: int | float | str
    center: bool | None
    scale: str | None
    missing: str
    columns: Sequence[str] | str | None
    categorical: AsGiven | None
    seed: int
    reconstruction_error: bool
    monitor: bool
    standard_errors: bool
    mask: bool | MaskedSums | str | None
    dp: DP | str | None
    channel: Layer | str | None
    wire: str
    partitioned_by: str
    explain: Sequence[str] | str
    adjust: Sequence[str] | str
    harmonize: str | None
    keep: Sequence[str] | str
    max_share: float | str | None
    variants: Variants | str | None
    highly_variable: HighlyVariable | str | None


class SimulationOptions(PCAConfigOptions, total=False):
    """The keywords of a simulation in this process. tol, min_rounds, max_rounds and patience go to the algorithm."""

    min_nodes: int
    fraction: float | Callable[[int], Iterable[int]]
    tol: float | None
    min_rounds: int | None
    max_rounds: int | None
    patience: int | None
