"""Refusals of tables, rows, numbers and keys."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from builders import rows
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from flower_pca import DataError, Table, from_frame, keys
from flower_pca.clients import PCAClient
from flower_pca.masking import fixed
from flower_pca.rows.local import LocalData
from refused import Refused

SITES = ["north"] * 4 + ["east"] * 4 + ["west"]
BARE = pd.DataFrame(rows(9, [3.0, 2.0, 1.0], seed=0), columns=["age", "bmi", "pulse"])
TABLE = BARE.assign(site=SITES)
PKCS8 = serialization.PrivateFormat.PKCS8


def local_data(X: Any, who: str = "client 2") -> None:
    LocalData(X, who=who)


def bounded(value: float, bound: float) -> None:
    fixed.encode({"Y": np.array([0.5, value])}, {"Y": np.array(bound)}, 3)


def nothing_is_written(hosts: Any = (), nodes: Any = 1) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            keys.write_keys(Path(folder) / "keys", nodes=nodes, hosts=hosts)
        finally:
            assert list(Path(folder).iterdir()) == []


def bytes_of_private(key: Any, form: Any = serialization.PrivateFormat.OpenSSH, secret: bytes | None = None) -> bytes:
    hidden = serialization.NoEncryption() if secret is None else serialization.BestAvailableEncryption(secret)
    return bytes(key.private_bytes(serialization.Encoding.PEM, form, hidden))


def bytes_of_public(key: Any) -> bytes:
    made = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return bytes(made)


def signing(make: Callable[[], bytes] | None) -> None:
    """A client with a file of these bytes for its key, or none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node"
        if make is not None:
            path.write_bytes(make())
        PCAClient(BARE.to_numpy(), sign_key=path)


def trusting(lines: list[bytes] | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trusted"
        if lines is not None:
            path.write_bytes(b"\n".join(lines))
        PCAClient(BARE.to_numpy(), trusted_keys=path)


def trusting_folder() -> None:
    """A folder with a private key only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "known"
        path.mkdir()
        (path / "node-0").write_bytes(bytes_of_private(ec.generate_private_key(ec.SECP384R1())))
        PCAClient(BARE.to_numpy(), trusted_keys=path)


def trusting_others() -> None:
    """A node that signs, and is not on its own list."""
    own, other = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        sign, trusted = Path(folder) / "node", Path(folder) / "trusted"
        sign.write_bytes(bytes_of_private(own))
        trusted.write_bytes(bytes_of_public(other))
        PCAClient(BARE.to_numpy(), sign_key=sign, trusted_keys=trusted)


def names_of_rows(ids: Any) -> None:
    Table(np.ones((9, 2)), ids=ids)


FRAME = [
    Refused({"frame": TABLE, "by": "Site"}, "^The table has no column named 'Site', only age, bmi, pulse, site. "),
    Refused(
        {"frame": TABLE, "by": None},
        "^The table has no column named None, only .*. Name the column of the sites, or give ",
    ),
    Refused(
        {"frame": TABLE, "by": SITES[:5]},
        "^by has 5 sites. Name the column of the sites, or give one site for each of the 9 rows.",
    ),
    Refused(
        {"frame": BARE, "by": TABLE[["site"]]}, "^by is a DataFrame of shape (9, 1). Name the column of the sites, or"
    ),
    Refused(
        {"frame": Table(BARE.to_numpy(), tuple(BARE)), "by": "Site"},
        "^The table has no column named 'Site', only age, bmi, pulse. ",
    ),
    Refused({"frame": BARE.to_numpy(), "by": "site"}, "^The table has no column named 'site'. Name"),
    Refused({"frame": BARE, "by": {0: "a"}}, "^by is a dict.* Name the column of the sites, or give one site"),
    Refused({"frame": BARE, "by": TABLE["site"][::-1]}, "^The index of by differs from the index of the table. If "),
    *[
        Refused({"frame": frame, "by": by}, f"^{sentence}", DataError)
        for frame, by, sentence in (
            (TABLE.replace("west", None), "site", "Column site has no site in 1 row. Name the site of every row"),
            *(
                (TABLE.assign(site=gap), "site", "Column site has no site in 1 row. Name the site of every row")
                for gap in (pd.array([*SITES[:8], None], dtype="string"), [*range(8), np.nan])
            ),
            (
                TABLE.assign(site=["a", "NA", "#N/A", *SITES[:6]]),
                "site",
                "Column site has 'NA', which stands for a missing value, in 2 rows. Name the site of every row",
            ),
            (BARE, [*SITES[:7], np.nan, " "], "The list of sites has no site in 2 rows. Name the site"),
            (TABLE.iloc[:0], "site", "The table has no rows. Give a table"),
            (TABLE[["site"]], "site", "The table has no columns except the column of the sites. Give"),
            (TABLE.set_axis(["a", "site", "b", "site"], axis=1), "site", "The columns of the table have the same name"),
            (
                TABLE.groupby("site"),
                "site",
                "from_frame cannot read a DataFrameGroupBy .*as a table of rows and columns. Give a",
            ),
        )
    ],
]
LOCAL = [
    *[
        Refused(
            {"X": kind(shape)},
            f"^The data of client 2 has no {'columns' if shape[0] else 'rows'}. Leave it out.",
            DataError,
        )
        for kind in (np.zeros, sp.csr_matrix, sp.csr_array)
        for shape in ((0, 3), (3, 0), (0, 0))
    ],
    *[
        Refused(
            {"X": X},
            "^The data of client 2 must be a two-dimensional array of real numbers with one row per sample. This one "
            f"has {got}",
            DataError,
        )
        for X, got in (
            (
                np.zeros(3),
                "1 dimension and dtype float64. Convert it first: for example, x[:, None] turns a vector into a",
            ),
            (np.float64(3.0), "0 dimensions and dtype float64. Convert it first."),
            (
                np.zeros((2, 3, 4)),
                "3 dimensions and dtype float64. Convert it first: for example, x.reshape(len(x), -1) makes a row of",
            ),
            (np.zeros((2, 2), dtype=complex), "2 dimensions and dtype complex128. Convert it first."),
            (np.array([["a", "b"]]), "2 dimensions and dtype <U1. Convert it first."),
            (np.zeros((2, 2), dtype=[("a", float)]), ".*Convert it first: for example, store its 1 field as columns"),
            (np.array([[1, None]]), "2 dimensions and dtype object"),
            (sp.coo_array(np.ones(3)), "1 dimension and dtype float64"),
            (sp.csr_array(np.eye(2) * 1j), "2 dimensions and dtype complex128"),
        )
    ],
    Refused({"X": [[np.inf, 1.0], [-np.inf, 1.0]]}, "2 infinite values.", DataError),
]
BOUNDED = [
    Refused(
        {"value": value, "bound": bound}, f"Y of this client has an entry that is not finite or {too_large}", DataError
    )
    for value, bound, too_large in (
        (1.001, 1.0, "exceeds .*, the bound of the masks"),
        (-1.001, 1.0, "exceeds .*, the bound of the masks"),
        (np.nan, 1.0, "exceeds .*, the bound of the masks"),
        (np.inf, 0.0, "too large for masked sums, .* Scale the data"),
        (1e29, 0.0, "too large for masked sums, .* Scale the data"),
    )
]
KEYS = [
    *[Refused({"nodes": nodes}, "nodes must be a whole number of at least 1") for nodes in (0, -1, 2.0, True, "2")],
    *[
        Refused({"hosts": [host]}, ".* is neither a host name such as superlink.example.org nor an address such as")
        for host in ("https://a.org", "a.org:8000", "", "-a", "a_b", "a..b", "x" * 64, "a b", "ä.org", "a\n")
    ],
]
SIGN = (
    "/.*/node (sign_key) is not a usable private key. The key must be ECDSA, on the curve P-256, P-384 or P-521, in "
    "OpenSSH or PEM format"
)
EVERY = "(trusted_keys) is not a usable public key. The key must be ECDSA"
SIGN_KEY = [
    Refused({"make": make}, sentence)
    for make, sentence in (
        (None, "/.*/node (sign_key) cannot be read (No such file or directory)."),
        (lambda: b"nothing", SIGN),
        (lambda: b"", SIGN),
        (lambda: bytes_of_public(ec.generate_private_key(ec.SECP384R1())), SIGN),
        (lambda: bytes_of_private(ed25519.Ed25519PrivateKey.generate()), SIGN),
        (lambda: bytes_of_private(rsa.generate_private_key(65537, 2048), PKCS8), SIGN),
        (lambda: bytes_of_private(ec.generate_private_key(ec.SECP256K1()), PKCS8), SIGN),
        (
            lambda: bytes_of_private(ec.generate_private_key(ec.SECP384R1()), PKCS8, b"secret"),
            f"{SIGN} and without a passphrase. Make one with ssh-keygen",
        ),
    )
]
TRUSTED_KEYS = [
    Refused({"lines": lines}, sentence)
    for lines, sentence in (
        (None, "/.*/trusted (trusted_keys) cannot be read (No such file or directory)."),
        ([], "/.*/trusted (trusted_keys) has no public key."),
        ([b"# nobody", b"  "], "(trusted_keys) has no public key."),
        ([b"# a comment", b"nonsense"], f"/.*/trusted, line 2 {EVERY}, on the curve P-256, P-384 or P-521, in OpenSSH"),
        ([bytes_of_public(ed25519.Ed25519PrivateKey.generate())], EVERY),
        ([bytes_of_private(ec.generate_private_key(ec.SECP384R1()))], EVERY),
    )
]
TRUSTED_FOLDER = [Refused({}, "/.*/known (trusted_keys) has no public key.")]
NOT_ON_ITS_LIST = [
    Refused({}, "trusted_keys lacks the public half of this node's own sign_key /.*/node, which is SHA256:.*. Add it")
]
IDS = [Refused({"ids": ("a", "b")}, "There are 2 ids for 9 rows", DataError)]
DOORS: dict[str, tuple[Callable[..., Any], list[Refused]]] = {
    "from_frame": (from_frame, FRAME),
    "rows of a client": (local_data, LOCAL),
    "numbers of a masked sum": (bounded, BOUNDED),
    "keys": (nothing_is_written, KEYS),
    "key to sign with": (signing, SIGN_KEY),
    "keys that are trusted": (trusting, TRUSTED_KEYS),
    "folder of keys that are trusted": (trusting_folder, TRUSTED_FOLDER),
    "keys that are trusted, of others": (trusting_others, NOT_ON_ITS_LIST),
    "ids of rows": (names_of_rows, IDS),
}
