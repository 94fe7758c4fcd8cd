"""Keys, mask streams and sealed shares, as a thin layer on the package cryptography, and Shamir's secret sharing.

Secret sharing is implemented here, with arithmetic modulo a prime just below 2^128, so that shares are as long as
secrets. With Python's integers, this is much faster than a library that multiplies in GF(2^128) bit by bit. In either
field, fewer shares than needed reveal nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from flower_pca.base.errors import ProtocolError
from flower_pca.base.linalg import Array

SEED: Final = 16  # the size of a secret and of its share, in bytes
_PRIME: Final = 2**128 - 159  # the largest prime that fits this number of bytes
KEY: Final = 32  # the size of a public key and of a derived key, in bytes
_ONCE: Final = bytes(12)  # the nonce for sealing, which may be constant because each key seals only one message
_START: Final = bytes(16)  # the counter and nonce at the start of a mask stream


def new_secret() -> bytes:
    """Return a new secret: a uniformly distributed number below the prime, as bytes."""
    while int.from_bytes(drawn := os.urandom(SEED)) >= _PRIME:
        pass
    return drawn


def derive_key(secret: bytes, info: bytes) -> bytes:
    """Derive a key for one use from a secret, by HKDF-SHA256."""
    return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=info).derive(secret)


def private_key(seed: bytes) -> X25519PrivateKey:
    """Return the X25519 private key that belongs to a secret."""
    # A private key has 32 bytes, but a share has only 16. Therefore the key is derived from a seed of 16 bytes, and
    # clients share the seed.
    return X25519PrivateKey.from_private_bytes(derive_key(seed, b"flower_pca masks: private key"))


def public_key(seed: bytes) -> bytes:
    """Return the X25519 public key that belongs to a secret."""
    return private_key(seed).public_key().public_bytes_raw()


def shared_secret(key: X25519PrivateKey, other: bytes) -> bytes:
    """Return the secret that the owners of both keys share. Other keys are derived from this secret."""
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:  # With a point of small order, the result would not depend on the private key.
        raise ProtocolError(
            "A node's public key gives no shared secret, because it is a point of small order. flower_pca never makes "
            "such a key. Ask the operator of the server which node sent it."
        ) from error


def mask_of_key(key: bytes, count: int) -> Array:
    """Return a mask: `count` integers mod 2^64 from ChaCha20."""
    return next(masks_of_keys((key,), count))


def masks_of_keys(keys: Iterable[bytes], count: int) -> Iterator[Array]:
    """Yield the masks of these keys one after another. Each mask overwrites the previous mask in memory."""
    nothing, place = bytes(8 * count), bytearray(8 * count)
    # The byte order is fixed, so that masks that were made on different machines cancel.
    mask = np.frombuffer(place, dtype="<u8")
    for key in keys:
        Cipher(ChaCha20(key, _START), mode=None).encryptor().update_into(nothing, place)
        yield mask


def encrypt(key: bytes, text: bytes, context: bytes) -> bytes:
    """Return an encrypted text. The key must be used only once, and decryption needs the same context."""
    return ChaCha20Poly1305(key).encrypt(_ONCE, text, context)


def decrypt(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the decrypted text. Raise ProtocolError if any bit of the sealed text has changed."""
    try:
        return ChaCha20Poly1305(key).decrypt(_ONCE, sealed, context)
    except InvalidTag as error:
        raise ProtocolError(
            "A share from another node cannot be decrypted: it was changed, cut off, or repeated from an earlier sum. "
            "This node has sent nothing. Ask the operator of the server."
        ) from error


def encrypted_size(shares: int) -> int:
    """Return the size in bytes of a sealed text that contains this number of shares and a public key."""
    return shares * SEED + KEY + 16


def split_secret(secret: bytes, needed: int, count: int) -> list[bytes]:
    """Split a secret into `count` shares. Any `needed` shares restore it, and fewer reveal nothing (Shamir 1979).

    The shares are the values at 1, 2, ... of a polynomial of degree needed - 1. Its value at 0 is the secret.
    """
    coefficients, constant = _random_numbers(needed - 1), int.from_bytes(secret)
    shares = []
    for x in range(1, count + 1):
        value = 0
        # In each step, the number grows only by the bits of x, so a single reduction at the end is faster.
        for coefficient in coefficients:
            value = (value + coefficient) * x
        shares.append(((value + constant) % _PRIME).to_bytes(SEED))
    return shares


def _random_numbers(count: int) -> list[int]:
    """Draw new secrets as numbers, all with one system call, because a call for each secret would be slow."""
    drawn = os.urandom(SEED * count)
    numbers = []
    for start in range(0, len(drawn), SEED):
        number = int.from_bytes(drawn[start : start + SEED])
        if number >= _PRIME:  # This happens once in 2^120 draws.
            number = int.from_bytes(new_secret())
        numbers.append(number)
    return numbers


def restore_secret(shares: Iterable[tuple[int, bytes]]) -> bytes:
    """Restore a secret from exactly as many shares as needed, by Lagrange's formula at 0.

    Each share comes with its number, counted from 0.
    """
    points = [(number + 1, int.from_bytes(share)) for number, share in shares]
    total = 0
    for x, value in points:
        above = below = 1
        for other, _ in points:
            if other != x:
                above = above * other % _PRIME
                below = below * (other - x) % _PRIME
        total += value * above * pow(below, -1, _PRIME)
    return (total % _PRIME).to_bytes(SEED)
