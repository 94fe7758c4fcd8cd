"""Certificates and keys of a federation: TLS for the SuperLink, and a key for every SuperNode."""

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

LOCAL: Final = ("localhost", "127.0.0.1", "::1")  # always among the server's names
DAYS: Final = 365
_CA, _CERTIFICATE, _KEY = "ca.crt", "server.pem", "server.key"
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z)({_LABEL}\.)*{_LABEL}\Z")


@dataclass(frozen=True)
class Keys:
    """Where the files of a federation are.

    Attributes
    ----------
    ca : path
        The certificate by which everybody knows the SuperLink; public.
    certificate : path
        The SuperLink's own; public.
    key : path
        Its private key.
    nodes : tuple of path
        The private keys of the SuperNodes; the public one beside each ends in .pub.
    """

    ca: Path
    certificate: Path
    key: Path
    nodes: tuple[Path, ...]

    @property
    def publics(self) -> tuple[Path, ...]:
        """The public keys of the SuperNodes, by which the SuperLink's owner admits them."""
        return tuple(path.with_name(f"{path.name}.pub") for path in self.nodes)


def write(folder: str | os.PathLike[str], *, nodes: int, hosts: Iterable[str] = ()) -> Keys:
    """Write certificates and keys, valid for a year, into a new folder.

    The key that signs is never written: nobody can sign another server into this federation, and a
    server of another name needs a new folder. A new node does not: it only needs a key that is
    registered.

    Parameters
    ----------
    folder : str or path
        The folder; it must be new or empty, and appears complete or not at all.
    nodes : int
        How many SuperNodes to make keys for: node-0, node-1, ...
    hosts : iterable of str, default=()
        Names and addresses by which nodes reach the SuperLink, beside those of this machine.

    Raises
    ------
    ConfigError
        If an argument is not valid, or if there is something in the folder already.
    """
    checks.integer("nodes", nodes, least=1)
    names = _names(hosts)
    target = Path(folder)
    _vacant(target)
    try:
        _appear(target, names, nodes)
    except OSError as error:
        _vacant(target)  # somebody else has been quicker
        raise ConfigError(
            f"The folder for keys, {target}, cannot be written ({error.strerror}), so nothing was written. Choose "
            "another folder."
        ) from error
    return Keys(target / _CA, target / _CERTIFICATE, target / _KEY, tuple(target / f"node-{i}" for i in range(nodes)))


def _appear(target: Path, names: list[x509.GeneralName], nodes: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, as a rename goes no further than its file system.
    draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        _certificates(draft, names)
        for i in range(nodes):
            _node(draft / f"node-{i}")
        os.replace(draft, target)  # onto an empty folder at most
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _vacant(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        found = "has files in it" if target.is_dir() else "is a file"
        raise ConfigError(
            f"The folder for keys must be new or empty, but {target} {found}. Nothing was written. Choose another "
            "folder."
        )


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
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


def _certificates(folder: Path, names: list[x509.GeneralName]) -> None:
    signer, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _subject("flower-pca test authority")
    ca = (
        _certificate(authority, authority, signer.public_key(), signer.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .sign(signer, hashes.SHA384())
    )
    server = (
        _certificate(_subject("flower-pca test server"), authority, key.public_key(), signer.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA384())
    )
    _store(folder / _CA, ca.public_bytes(serialization.Encoding.PEM))
    _store(folder / _CERTIFICATE, server.public_bytes(serialization.Encoding.PEM))
    _store(folder / _KEY, _private(key, serialization.PrivateFormat.PKCS8), private=True)


def _node(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    _store(path, _private(key, serialization.PrivateFormat.OpenSSH), private=True)
    _store(path.with_name(f"{path.name}.pub"), key.public_key().public_bytes(encoding, form) + b"\n")


def _subject(name: str) -> x509.Name:
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
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
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


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _store(path: Path, content: bytes, *, private: bool = False) -> None:
    # With its mode from the start: a key that is closed afterwards could be read in between.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
