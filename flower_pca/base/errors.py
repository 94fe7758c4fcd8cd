"""The exceptions of this package, which have a common base class.

An error describes what is wrong, with its name and place, and then one thing to do. If the advice contains a setting,
`base.options` writes the setting as the user's interface requires.

This module also lists optional packages with the extras that install them, and defines the error for a missing package.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from flower_pca.base.options import Sentence

_LONGEST: Final = 500  # maximum number of characters that are kept of a text from another machine
# Errors about a message or an answer that this version of the package cannot have sent end with this advice.
OTHER_SERVER: Final = "The server may run another version of flower_pca. Install the same version everywhere."
OTHER_CLIENT: Final = "The client may run another version of flower_pca. Install the same version everywhere."


class FlowerPCAError(Exception):
    """The base class of all errors that this package raises on purpose.

    Parameters
    ----------
    words : str
        The text of the error.
    setting : str, default=""
        The setting to which the error refers, by its name in Python, or "".
    value : default=None
        The value that was given for the setting.
    place : str, default=""
        The place of the fault: a file, a line or a client.

    Attributes
    ----------
    setting : str
        The setting to which the error refers, by its name in Python, or "".
    value
        The value that was given for the setting.
    place : str
        The place of the fault: a file, a line or a client.
    words : str
        The text, which `base.options.with_advice_written` can rewrite for another interface.
    private : bool
        Whether the text describes files or cells of this machine. A private text is not sent to other machines.

    Examples
    --------
    >>> from flower_pca import FlowerPCAError, simulate
    >>> try:
    ...     simulate("krylof", [[[1.0, 2.0], [3.0, 5.0]]])
    ... except FlowerPCAError as error:
    ...     print(error.setting)
    algorithm
    """

    private = False

    def __init__(self, words: str, *, setting: str = "", value: object = None, place: str = "") -> None:
        self.setting, self.value, self.place = setting, value, place
        self.words = Sentence(words)
        super().__init__(self.words)


class ConfigError(FlowerPCAError, ValueError):
    """The error for an invalid setting of a run.

    Examples
    --------
    >>> from flower_pca import ConfigError, make
    >>> try:
    ...     make("krylov(tol=-1.0)")
    ... except ConfigError as error:
    ...     print(type(error).__name__)
    ConfigError
    """


class DataError(FlowerPCAError, ValueError):
    """The error for unusable rows, at one client or at all clients together.

    Examples
    --------
    >>> from flower_pca import DataError, simulate
    >>> try:
    ...     simulate("krylov", [[[1.0, float("nan")], [3.0, 5.0]]], n_components=1)
    ... except DataError as error:
    ...     print(type(error).__name__)
    DataError
    """


class ProtocolError(FlowerPCAError, RuntimeError):
    """The error for a message or a file that does not have the expected layout.

    Examples
    --------
    >>> from flower_pca import ProtocolError, Scaling
    >>> try:
    ...     Scaling.from_record({})
    ... except ProtocolError as error:
    ...     print(type(error).__name__)
    ProtocolError
    """


class NotEnoughNodes(FlowerPCAError, RuntimeError):  # noqa: N818
    """The error for a run that gets answers from too few clients.

    Examples
    --------
    >>> from flower_pca import NotEnoughNodes, simulate
    >>> try:
    ...     simulate("krylov", [[[1.0, 2.0], [3.0, 5.0]]], n_components=1, min_nodes=2)
    ... except NotEnoughNodes as error:
    ...     print(type(error).__name__)
    NotEnoughNodes
    """


def marked_private() -> AbstractContextManager[None]:
    """Return a context manager that marks errors in its block as private, because they name files of this machine."""
    return _marking_errors(private=True)


def marked_public() -> AbstractContextManager[None]:
    """Return a context manager that marks errors in its block as public, because they concern only run settings."""
    return _marking_errors(private=False)


@contextmanager
def _marking_errors(*, private: bool) -> Iterator[None]:
    try:
        yield
    except FlowerPCAError as error:
        error.private = private
        raise


def safe_for_log(text: str) -> str:
    """Return a text from another machine in a form safe to log: shortened, with control characters escaped."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


# For each optional package, this table gives its module, and the extra of flower-pca that installs it.
EXTRAS: Final = {
    "matplotlib": ("matplotlib", "plot"),
    "scikit-learn": ("sklearn", "sklearn"),
    "pyarrow": ("pyarrow", "parquet"),
    "flwr-datasets": ("flwr_datasets", "datasets"),
    "h5py": ("h5py", "hdf5"),
    "zarr": ("zarr", "zarr"),
    "python-calamine": ("python_calamine", "excel"),
    "pyreadstat": ("pyreadstat", "statistics-files"),
    "Ray": ("ray", "simulation"),
}


def is_installed(package: str) -> bool:
    """Return whether an optional package is installed."""
    return importlib.util.find_spec(EXTRAS[package][0]) is not None


def not_installed(package: str, purpose: str) -> ConfigError:
    """Return the error for a missing package. `purpose` says what it is needed for, such as "to draw plots"."""
    return ConfigError(
        f'{package} is needed {purpose}, but is not installed. Run: pip install "flower-pca[{EXTRAS[package][1]}]"'
    )


@contextmanager
def requiring(package: str, purpose: str) -> Iterator[None]:
    """Within the block, convert an ImportError into an error that tells the user how to install the package.

    `purpose` says what the package is needed for, such as "to draw plots".
    """
    try:
        yield
    except ImportError as error:
        raise not_installed(package, purpose) from error
