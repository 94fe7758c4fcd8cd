"""The identity of a node: the key with which it signs what it publishes at a set-up, and the keys that it trusts.

These are the ECDSA keys with which SuperNodes authenticate to Flower, made by ssh-keygen or `flower-pca keys`. The
texts that are signed here begin with a label, and the signatures use a different hash than Flower's. Therefore, nobody
can use these signatures to authenticate to Flower.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from flower_pca.base.errors import ConfigError, ProtocolError
from flower_pca.base.shown import path_text, shown

_CURVES: Final = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)  # the curves that OpenSSH supports
_RULE: Final = "ECDSA, on the curve P-256, P-384 or P-521"
_MAKE: Final = "Make one with ssh-keygen -t ecdsa -b 384 -N '' -f FILE."
# The size in bytes of each of the two numbers of a signature, for the largest curve
_NUMBER: Final = 66
NAME: Final = sha256().digest_size  # the size in bytes of the name of a key
_HASH: Final = ec.ECDSA(SHA384())
_SENT_NOTHING: Final = "This node has sent nothing."
_ASK_SERVER: Final = "Do not start another run until the operator of the server has explained this."


@dataclass(frozen=True)
class NodeIdentity:
    """The key with which a node signs, and the keys whose signatures it requires.

    Attributes
    ----------
    key : EllipticCurvePrivateKey or None
        The node's own key, or None if the node does not sign.
    trusted : mapping or None
        The keys of the federation's nodes by `fingerprint`, or None if the node requires no signatures.
    """

    key: ec.EllipticCurvePrivateKey | None = None
    trusted: Mapping[bytes, ec.EllipticCurvePublicKey] | None = None

    @classmethod
    def load(cls, sign_key: str | os.PathLike[str] | None, trusted_keys: str | os.PathLike[str] | None) -> NodeIdentity:
        """Load the keys from the node's files.

        Parameters
        ----------
        sign_key : str or path or None
            The node's own private key, in OpenSSH or PEM format.
        trusted_keys : str or path or None
            A file with a public key in OpenSSH format on every line, or a folder of .pub files.

        Raises
        ------
        ConfigError
            If a file cannot be used, or if the list of trusted keys lacks the node's own key.
        """
        key = trusted = None
        if sign_key is not None:
            key = _read_private_key(_path_of_key("sign_key", sign_key))
        if trusted_keys is not None:
            trusted = dict(_trusted_lines(_path_of_key("trusted_keys", trusted_keys)))
        if key is not None and trusted is not None and (own := fingerprint(key.public_key())) not in trusted:
            raise ConfigError(
                f"trusted_keys lacks the public half of this node's own sign_key {path_text(sign_key)}, which is "
                f"{printable_fingerprint(own)}. Add it, because the other nodes refuse every key that is not on "
                f"the list."
            )
        return cls(key, trusted)

    def sign(self, text: bytes) -> bytes:
        """Return the name of the node's key followed by its signature of a text, or empty bytes without a key."""
        if self.key is None:
            return b""
        r, s = decode_dss_signature(self.key.sign(text, _HASH))
        return fingerprint(self.key.public_key()) + r.to_bytes(_NUMBER, "big") + s.to_bytes(_NUMBER, "big")

    def check(self, published: Mapping[int, bytes], signatures: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return, for each peer, the name of the key with which the peer has signed its published text.

        Without trusted keys, signatures are not checked, and the dict is empty.

        Raises
        ------
        ProtocolError
            If a peer has not signed with a trusted key, or if two members have signed with the same key.
        """
        if self.trusted is None:
            return {}
        names: dict[int, bytes] = {}
        seen = set[bytes]()
        if self.key is not None:
            seen.add(fingerprint(self.key.public_key()))
        for peer, text in published.items():
            signature = signatures.get(peer, b"")
            signer = signature[:NAME]
            # Signatures travel as rows of equal length, so the server sends zeros for a node that does not sign.
            if not any(signature):
                raise ProtocolError(
                    f"The peer at position {peer} has not signed its keys, but this node's trusted_keys require it. "
                    f"{_SENT_NOTHING} Give every node its sign_key."
                )
            if signer not in self.trusted:
                raise ProtocolError(
                    f"A peer's keys are signed by {printable_fingerprint(signer)}, which is not in this node's "
                    f"trusted_keys. {_SENT_NOTHING} Add this key to the list if it belongs to a node of yours."
                )
            if signer in seen:
                raise ProtocolError(
                    f"{printable_fingerprint(signer)} signed the keys of two members of this set-up. {_SENT_NOTHING} "
                    f"{_ASK_SERVER}"
                )
            if not _is_valid(self.trusted[signer], text, signature[NAME:]):
                raise ProtocolError(
                    f"A peer's keys differ from the keys that {printable_fingerprint(signer)} has signed for this "
                    f"set-up. {_SENT_NOTHING} {_ASK_SERVER}"
                )
            seen.add(signer)
            names[peer] = signer
        return names

    def check_agreed(self, text: bytes, names: Mapping[int, bytes], signatures: Mapping[int, bytes]) -> None:
        """Require that each peer has signed this text about the group with its key. `names` has the keys' names.

        Without trusted keys, nothing is checked.
        """
        if self.trusted is None:
            return
        for peer, signer in names.items():
            signature = signatures.get(peer, b"")
            key, numbers = self.trusted[signer], signature[NAME:]
            if signature[:NAME] != signer or not _is_valid(key, text, numbers):
                raise ProtocolError(
                    "The run, members and threshold of this set-up, as the server sent them here, have no valid "
                    f"signature from {printable_fingerprint(signer)}. {_SENT_NOTHING} {_ASK_SERVER}"
                )


_LEAVES: Final = b"flower_pca masks: the owner of this key leaves for good the nodes of these keys"


def signed_consent(sign_key: str | os.PathLike[str], trusted_keys: str | os.PathLike[str]) -> str:
    """Return a line, signed with `sign_key`, that allows the nodes in `trusted_keys` to continue without this node."""
    own = NodeIdentity.load(sign_key, trusted_keys)
    return own.sign(_text_of_consent(own.trusted or {})).hex()


def signer_of_consent(line: str, trusted_keys: str | os.PathLike[str]) -> bytes:
    """Return the name of the key whose owner has signed this line.

    Raises
    ------
    ConfigError
        If the line is not signed with a trusted key, for exactly these trusted keys.
    """
    trusted = NodeIdentity.load(None, trusted_keys).trusted or {}
    try:
        signature = bytes.fromhex(line.strip())
    except ValueError:
        signature = b""
    owner = signature[:NAME]
    if owner not in trusted or not _is_valid(trusted[owner], _text_of_consent(trusted), signature[NAME:]):
        raise ConfigError(
            "The file given by --consent has no valid signature: it must be signed with one of the keys in "
            "trusted-keys, and for the same list of keys as at this node. At the site that leaves, run flower-pca "
            "leave again with the same trusted-keys, and do not change the list before all sites have used the file."
        )
    return owner


def _text_of_consent(trusted: Mapping[bytes, object]) -> bytes:
    return _LEAVES + sha256(b"".join(sorted(trusted))).digest()


def fingerprint(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the SHA-256 fingerprint of a public key, by which nodes name it. ssh-keygen computes the same."""
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return sha256(base64.b64decode(line.split()[1])).digest()


def printable_fingerprint(name: bytes) -> str:
    """Return a fingerprint as `ssh-keygen -l` shows it."""
    return f"SHA256:{base64.b64encode(name).decode().rstrip('=')}"


def _is_valid(key: ec.EllipticCurvePublicKey, text: bytes, numbers: bytes) -> bool:
    r = int.from_bytes(numbers[:_NUMBER], "big")
    s = int.from_bytes(numbers[_NUMBER:], "big")
    try:
        key.verify(encode_dss_signature(r, s), text, _HASH)
    except InvalidSignature:
        return False
    return True


def _path_of_key(what: str, value: object) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ConfigError(
            f"{what} needs the path of a file, but {shown(value)} is not a path. Name a file, or leave {what} out."
        )
    return Path(value).expanduser()


def _read_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    text = _read_file("sign_key", path)
    ssh = b"OPENSSH PRIVATE KEY" in text
    try:
        key = (serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key)(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, _CURVES):
        raise ConfigError(
            f"{path} (sign_key) is not a usable private key. The key must be {_RULE}, in OpenSSH or PEM format and "
            f"without a passphrase. {_MAKE}"
        )
    return key


def _trusted_lines(place: Path) -> Iterator[tuple[bytes, ec.EllipticCurvePublicKey]]:
    empty, paths = True, [place]
    if place.is_dir():
        paths = sorted(place.glob("*.pub"))
    for path in paths:
        for number, line in enumerate(_read_file("trusted_keys", path).splitlines(), start=1):
            if line.strip() and not line.lstrip().startswith(b"#"):
                empty, key = False, _read_public_key(line.strip(), f"{path}, line {number}")
                yield fingerprint(key), key
    if empty:
        raise ConfigError(
            f"{place} (trusted_keys) has no public key. Name a file with one public key on every line, or a folder of "
            ".pub files."
        )


def _read_public_key(line: bytes, place: str) -> ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_ssh_public_key(line)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(
            f"{place} (trusted_keys) is not a usable public key. The key must be {_RULE}, in OpenSSH format. {_MAKE}"
        )
    return key


def _read_file(what: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path} ({what}) cannot be read ({error.strerror}). Check the path and its permissions, or name another "
            "file."
        ) from error
