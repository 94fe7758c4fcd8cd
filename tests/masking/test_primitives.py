"""Test keys and streams by known answers (RFC 7748, 5869, 8439) and secret sharing by its equations."""

import random

import numpy as np
import pytest
from cases import every
from Crypto.Cipher import ChaCha20 as OtherChaCha20
from Crypto.Cipher import ChaCha20_Poly1305 as OtherAEAD
from Crypto.Hash import SHA256
from Crypto.Protocol import KDF
from Crypto.Util.number import isPrime
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from flower_pca.base.errors import ProtocolError
from flower_pca.masking import messages, primitives

ALICE = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SHARED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
ZEROS = (  # RFC 8439, A.1, vector 1
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)


def test_key_agreement_is_that_of_rfc_7748():
    alice = X25519PrivateKey.from_private_bytes(bytes.fromhex(ALICE))
    assert alice.public_key().public_bytes_raw().hex() == ALICE_PUBLIC
    assert primitives.shared_secret(alice, bytes.fromhex(BOB_PUBLIC)).hex() == SHARED


def test_two_sides_derive_the_same_key_and_a_third_does_not():
    a, b, c = (bytes([i]) * 16 for i in range(3))
    one, other = (
        primitives.shared_secret(primitives.private_key(x), primitives.public_key(y)) for x, y in ((a, b), (b, a))
    )
    assert one == other != primitives.shared_secret(primitives.private_key(c), primitives.public_key(b))


def test_key_derivation_is_that_of_rfc_5869():
    assert primitives.derive_key(b"\x0b" * 22, b"").hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"  # A.3, the first 32 bytes
    )
    other = KDF.HKDF(b"secret", 32, b"", SHA256, context=b"info")
    assert primitives.derive_key(b"secret", b"info") == other


def test_a_mask_is_the_stream_of_rfc_8439():
    words = primitives.mask_of_key(bytes(32), 8)
    assert words.dtype == np.uint64
    assert words.tobytes().hex() == ZEROS
    key = bytes(range(32))
    assert primitives.mask_of_key(key, 1000).tobytes() == OtherChaCha20.new(key=key, nonce=bytes(12)).encrypt(
        bytes(8000)
    )


def test_sealed_shares_are_those_of_another_implementation():
    key, text, context = bytes(range(32)), bytes(range(100, 164)), b"from 1 to 2"
    cipher = OtherAEAD.new(key=key, nonce=bytes(12))
    cipher.update(context)
    sealed = b"".join(cipher.encrypt_and_digest(text))
    assert primitives.encrypt(key, text, context) == sealed
    assert len(sealed) == primitives.encrypted_size(2)
    assert primitives.decrypt(key, sealed, context) == text


@every("how", ["flipped", "cut", "of another sum", "under another key"])
def test_what_was_changed_is_not_opened(how):
    key, context = bytes(range(32)), b"sum 3"
    sealed = bytearray(primitives.encrypt(key, bytes(32), context))
    if how == "flipped":
        sealed[7] ^= 1
    if how == "cut":
        del sealed[-1]
    other = {"of another sum": (key, b"sum 4"), "under another key": (bytes(32), context)}.get(how, (key, context))
    with pytest.raises(ProtocolError, match="A share from another node cannot be decrypted: "):
        primitives.decrypt(other[0], bytes(sealed), other[1])


P = 2**128 - 159


def at_whole_numbers(coefficients, count):
    """A polynomial at 1, 2, ..., exactly and then mod P: in the integers, power by power."""
    return [sum(c * x**k for k, c in enumerate(coefficients)) % P for x in range(1, count + 1)]


def test_the_modulus_is_prime():
    assert isPrime(P)
    assert P < 2**128


@every("secret", [0, 1, 5, P - 1])
@every("needed", [1, 2, 3, 9])
def test_a_secret_is_the_value_at_zero_of_the_polynomial_through_the_shares(secret, needed):
    rng = random.Random(needed)
    polynomial = [secret, *(rng.randrange(P) for _ in range(needed - 1))]
    shares = [(i, value.to_bytes(16, "big")) for i, value in enumerate(at_whole_numbers(polynomial, 12))]
    for _ in range(4):
        assert primitives.restore_secret(rng.sample(shares, needed)) == secret.to_bytes(16, "big")


def test_shares_are_values_of_a_polynomial_of_the_degree_that_is_needed_drawn_from_the_system(monkeypatch):
    first, *drawn = [c.to_bytes(16, "big") for c in (7, P, P + 1, P - 1)]  # Numbers not below P are drawn again.
    drawn[0] = first + drawn[0]
    monkeypatch.setattr(primitives.os, "urandom", lambda size: drawn.pop(0)[:size])
    shares = primitives.split_secret((11).to_bytes(16, "big"), 3, 4)
    assert not drawn
    found = [int.from_bytes(share, "big") for share in shares]
    assert found in (at_whole_numbers([11, 7, P - 1], 4), at_whole_numbers([11, P - 1, 7], 4))


def test_one_share_too_few_leaves_every_secret_as_likely():
    """For each secret there is just one polynomial through the shares that are known, and all are drawn alike."""
    shares = list(enumerate(primitives.split_secret(bytes(range(16)), 3, 5)))
    for secret in (0, 1, P // 2, P - 1):
        points = [(0, secret), *((i + 1, int.from_bytes(share, "big")) for i, share in shares[:2])]
        third = lagrange(points, 3).to_bytes(16, "big")
        assert primitives.restore_secret([*shares[:2], (2, third)]) == secret.to_bytes(16, "big")


def lagrange(points, x):
    """The value at x of the polynomial through three points, by solving Vandermonde's equations mod P."""
    rows = [[1, at % P, at * at % P, value] for at, value in points]
    for i in range(3):
        pivot = next(r for r in range(i, 3) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        inverse = pow(rows[i][i], P - 2, P)
        rows[i] = [entry * inverse % P for entry in rows[i]]
        for r in range(3):
            if r != i:
                rows[r] = [(entry - rows[r][i] * own) % P for entry, own in zip(rows[r], rows[i], strict=True)]
    return sum(rows[k][3] * x**k for k in range(3)) % P


@every(("needed", "count"), [(2, 2), (3, 5), (16, 30)])
def test_any_enough_shares_bring_a_secret_back_and_fewer_do_not(needed, count):
    secret = bytes(range(16))
    shares = list(enumerate(primitives.split_secret(secret, needed, count)))
    rng = np.random.default_rng(count)
    for _ in range(3):
        chosen = [shares[i] for i in rng.permutation(count)[:needed]]
        assert primitives.restore_secret(chosen) == secret
        assert primitives.restore_secret(chosen[:-1]) != secret


@every("bad", [-1, -3.0, np.float64(-3.0), np.int64(-1), 2**64, 1e30, np.nan, np.inf])
def test_no_mask_is_bound_to_what_is_no_number_of_a_sum(bad):
    for place in range(3):
        numbers = [3, 3, 3]
        numbers[place] = bad
        with pytest.raises((OverflowError, ValueError)):
            messages.context_of_pair_mask(b"set-up", b"course", *numbers)
    assert messages.context_of_pair_mask(b"", b"", 3.0, np.float64(0.0), 2**60 + 1).endswith(
        b"".join(number.to_bytes(8, "big") for number in (3, 0, 2**60 + 1))
    )
