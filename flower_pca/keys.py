"""Write the certificates and keys of a federation: TLS for the SuperLink, and a key for every SuperNode."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flower_pca.base import checks
from flower_pca.base.errors import ConfigError
from flower_pca.base.shown import shown

LOCAL: Final = ("localhost", "127.0.0.1", "::1")  # the names of this machine, which every server certificate includes
DAYS: Final = 365  # the number of days for which certificates are valid
_CA, _CERTIFICATE, _KEY = "ca.crt", "server.pem", "server.key"
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*{_LABEL}\Z")


@dataclass(frozen=True)
class Keys:
    """The paths of a federation's certificates and keys.

    Attributes
    ----------
    ca : path
        The public certificate of the authority, with which nodes and users verify the SuperLink.
    certificate : path
        The public certificate of the SuperLink.
    key : path
        The private key of the SuperLink.
    nodes : tuple of path
        The private keys of the SuperNodes. The public key of each is next to it, with the suffix .pub.
    """

    ca: Path
    certificate: Path
    key: Path
    nodes: tuple[Path, ...]

    @property
    def publics(self) -> tuple[Path, ...]:
        """The paths of the SuperNodes' public keys, which the owner of the SuperLink registers."""
        return tuple(path.with_name(f"{path.name}.pub") for path in self.nodes)


def write_keys(folder: str | os.PathLike[str], *, nodes: int, hosts: Iterable[str] = ()) -> Keys:
    """Write certificates and keys, valid for a year, into a new folder.

    The signing key of the authority is never written, so nobody can sign a certificate for another server of this
    federation. A server with another name therefore needs a new folder. A new node only needs a key that is
    registered at the SuperLink.

    Parameters
    ----------
    folder : str or path
        The folder, which must be new or empty. If an error occurs, nothing is written.
    nodes : int
        The number of SuperNodes to make keys for: node-0, node-1, ...
    hosts : iterable of str, default=()
        The names and addresses by which nodes reach the SuperLink, in addition to the names of this machine.

    Returns
    -------
    Keys
        The paths of the written files.

    Raises
    ------
    ConfigError
        If an argument is invalid, or if the folder is not empty.
    """
    checks.integer("nodes", nodes, least=1)
    names = _names_of_hosts(hosts)
    target = Path(folder)
    _require_vacant(target)
    try:
        _write_at_once(target, names, nodes)
    except OSError as error:
        _require_vacant(target)  # This explains the error if another process has written to the folder in the meantime.
        raise ConfigError(
            f"The folder for keys, {target}, cannot be written ({error.strerror}), so nothing was written. Choose "
            "another folder."
        ) from error
    return Keys(target / _CA, target / _CERTIFICATE, target / _KEY, tuple(target / f"node-{i}" for i in range(nodes)))


def _write_at_once(target: Path, names: list[x509.GeneralName], nodes: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # The draft is next to the target, because a folder can only be renamed within one file system.
    draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        _write_certificates(draft, names)
        for i in range(nodes):
            _write_node_key(draft / f"node-{i}")
        os.replace(draft, target)  # This fails if the target is not empty.
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _require_vacant(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        found = "has files in it" if target.is_dir() else "is a file"
        raise ConfigError(
            f"The folder for keys must be new or empty, but {target} {found}. Nothing was written. Choose another "
            "folder."
        )


def _names_of_hosts(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys([*LOCAL, *hosts]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not _HOST.match(host):
                raise ConfigError(
                    f"{shown(host)} is neither a host name such as superlink.example.org nor an address such as "
                    "192.0.2.1. Leave out the scheme and the port."
                ) from None
            names.append(x509.DNSName(host))
    return names


def _write_certificates(folder: Path, names: list[x509.GeneralName]) -> None:
    signer, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _subject_name("flower-pca test authority")
    ca = (
        _certificate(authority, authority, signer.public_key(), signer.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign=True), critical=True)
        .sign(signer, hashes.SHA384())
    )
    server = (
        _certificate(_subject_name("flower-pca test server"), authority, key.public_key(), signer.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA384())
    )
    _store_file(folder / _CA, ca.public_bytes(serialization.Encoding.PEM))
    _store_file(folder / _CERTIFICATE, server.public_bytes(serialization.Encoding.PEM))
    _store_file(folder / _KEY, _private_key_bytes(key, serialization.PrivateFormat.PKCS8), private=True)


def _write_node_key(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    _store_file(path, _private_key_bytes(key, serialization.PrivateFormat.OpenSSH), private=True)
    _store_file(path.with_name(f"{path.name}.pub"), key.public_key().public_bytes(encoding, form) + b"\n")


def _subject_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, signer: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # The clock of another machine may be behind.
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _key_usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _private_key_bytes(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _store_file(path: Path, content: bytes, *, private: bool = False) -> None:
    # The file is created with its final mode. If the mode were set afterwards, others could read a key in between.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
