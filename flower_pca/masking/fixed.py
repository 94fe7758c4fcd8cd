"""Fixed point: real numbers as integers mod 2^64, so that masks hide them perfectly and sums are exact.

An entry x with |x| <= B becomes round(2^f x + g). All clients use the same f, the largest with N B 2^f < 2^61. The
server's bound B determines the step 2^-f. With plain rounding, a step as large as the answers would allow the server to
compare clients. Therefore, each client adds its own noise g with a standard deviation of 2 steps. Rounding to whole
steps then reveals nothing. The error of a sum is about 2 sqrt(N) steps of at most N B 2^-60 each, and no sum can
overflow. A sum beyond 2^61 shows that a mask was not removed. At the end, sums of counts are rounded to whole numbers,
and entries that may be only noise become 0.

If no bound is known, an entry becomes four words of 48 bits (the wide form), from 2^-96 to 2^95. Its noise also has a
standard deviation of 2 steps. The carries between words would reveal a little more than the sum. Therefore, each
client moves a random number of units from every word to the word below. This does not change the sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from flower_pca.base.bits import Bits, system_bits
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Part
from flower_pca.core.stage import Arrays
from flower_pca.dp import drawing
from flower_pca.masking import messages
from flower_pca.masking.dither import draw_normals, private_random_bits
from flower_pca.masking.messages import SpentError
from flower_pca.masking.secrets import SetupSecrets

# The maximum number of clients in a sum. The sum of this many wide words is still below the limit.
MOST_CLIENTS: Final = 2**13
# The maximum number of bits of a sum. Two more bits would fit, but a sum from which a mask was not removed consists of
# random numbers, and these could then look like a valid sum.
_LIMIT: Final = 61
# The wide form of a number: the count of words, the bits of each word, and the bits after the binary point
_WORDS, _BITS, _FRACTION = 4, 48, 96
# The largest number that four words can represent
_WIDEST: Final = np.array(2.0 ** (_WORDS * _BITS - _FRACTION - 1))
# Bounds that follow from a sum of squares of 0 are smaller than this, and all other bounds are larger.
_OF_NOTHING: Final = 1e-50
_AT_ONCE: Final = 2**12  # the number of entries that are encoded at a time, so that they fit into the processor's cache
_NOISE_STEPS: Final = 2.0  # the standard deviation of each client's noise, in steps
_NOISE_LIMIT: Final = 9.0  # the noise of all clients together never exceeds this number of standard deviations


def encoded_size(shapes: Mapping[str, tuple[int, ...]], bounds: Mapping[str, Array]) -> int:
    """Return the number of integers mod 2^64 that encode arrays of these shapes."""
    words = 0
    for name, shape in shapes.items():
        each = 1 if bounds[name].all() else _WORDS
        words += math.prod(shape) * each
    return words


def bound_with_noise(deviation: float, clients: int) -> float:
    """Return the largest bound for which the step 2^-f is at most 2^-10 of this standard deviation.

    The bound does not depend on rows, so a client reveals nothing if its answer is within the bound. Noise never
    reaches the bound, because it is at least 2^37 standard deviations.
    """
    return math.ldexp(deviation / clients, _LIMIT - 1 - drawing.FINER)


def bounds_with_noise(parts: Mapping[str, Part], deviation: float, clients: int) -> Arrays:
    """Return the bound of each part of an answer, for noise of this standard deviation.

    The bound of the number of rows is 1, because each client reports 1 under noise.
    """
    bound = bound_with_noise(deviation, clients)
    most = {name: 1.0 if part.kind.counts_rows else bound for name, part in parts.items()}
    return {name: np.array(one) for name, one in most.items()}


def encode(arrays: Arrays, bounds: Mapping[str, Array], clients: int, bits: Bits = private_random_bits) -> Array:
    """Return one client's arrays, in the order of their names, as integers mod 2^64 with noise."""
    names = sorted(arrays)
    words = [_encode_array(n, arrays[n], bounds[n], clients, bits) for n in names]
    return np.concatenate(words)


def decode(
    total: Array,
    shapes: Mapping[str, tuple[int, ...]],
    bounds: Mapping[str, Array],
    clients: int,
    whole: Collection[str] = (),
) -> Arrays:
    """Return the sums of arrays over this many clients, decoded from integers mod 2^64.

    Arrays in `whole` are sums of whole numbers, and are rounded.
    """
    arrays, rest = {}, total.view(np.int64)
    for name in sorted(shapes):
        own, rest = np.split(rest, [encoded_size({name: shapes[name]}, bounds)])
        values = _decode_array(own, shapes[name], bounds[name], clients)
        arrays[name] = np.rint(values) if name in whole else values
    return arrays


def check_client_count(arrays: Arrays, secrets: SetupSecrets) -> None:
    """Refuse a message if its number of clients is impossible for this sum. The check does not need the rows."""
    clients, least = arrays["mask.clients"], len(secrets.holders) + 1
    if clients.shape or clients.dtype.kind not in "iu" or not least <= clients <= MOST_CLIENTS:
        got = "not one whole number" if clients.shape or clients.dtype.kind not in "iu" else f"{clients:,}"
        raise ProtocolError(
            f"The number of clients in this masked sum is {got}, but must be from {least} to {MOST_CLIENTS:,}. "
            f"{messages.ASK_SERVER}"
        )


def check_bounds_for_noise(arrays: Arrays, parts: Mapping[str, Part], noise: Arrays, summed: int) -> None:
    """Require the bounds that follow from the noise. With other bounds, a server could test how large an answer is.

    The server sees the answer only in a sum of at least `summed` answers.
    """
    from flower_pca.layers.noise import requested_noise

    own = bounds_with_noise(parts, requested_noise(noise, summed), int(arrays["mask.clients"]))
    for name, bound in messages.bounds_in_message(arrays).items():
        if name not in own or not np.array_equal(own[name], bound):
            raise ProtocolError(f"The bounds of this masked sum do not follow from its noise. {messages.ASK_SERVER}")


def dither_of_sum(bound: Array, clients: int) -> float:
    """Return the standard deviation of the rounding noise in one entry of a sum over this number of clients."""
    exponent = int(_step_exponents(bound, clients).min()) if bound.all() else _FRACTION
    return math.ldexp(_NOISE_STEPS * math.sqrt(clients), -exponent)


def encode_answer(arrays: Arrays, answer: Arrays, memory: Arrays, bits: Bits) -> Array:
    """Return the answer in fixed point.

    If the answer exceeds a bound, the client does not answer, and this silence reveals something about the client.
    Therefore, the client then deletes the secrets of the set-up and keeps only the `memory` of the stage, so that
    a server cannot try one bound after another. The rule `max_dropouts` of a node also limits the number of such
    losses.

    Raises
    ------
    SpentError
        If an entry of the answer exceeds its bound.
    ProtocolError
        If the bounds do not fit the arrays of the answer.
    """
    bounds = messages.bounds_in_message(arrays)
    if set(bounds) != set(answer):
        raise ProtocolError(
            f"The message has bounds for {', '.join(bounds) or 'no arrays'}, but the masked sum consists of "
            f"{', '.join(answer)}. Install the same version of flower_pca everywhere."
        )
    for name, bound in bounds.items():
        try:
            np.broadcast_to(bound, answer[name].shape)
        except ValueError:
            raise ProtocolError(
                f"The bound of {name} in this masked sum has shape {bound.shape}, which does not fit the answer's "
                f"shape {answer[name].shape}. {messages.ASK_SERVER}"
            ) from None
    try:
        return encode(answer, bounds, int(arrays["mask.clients"]), bits)
    except DataError as error:
        raise SpentError(str(error), memory) from error


def _step_exponents(bound: Array, clients: int) -> Array:
    """Return the exponent f of the step 2^-f for each bound. `frexp` is exact, so all machines get the same f."""
    return np.asarray(_LIMIT - np.frexp(bound * clients)[1])


def _encode_array(name: str, a: Array, bound: Array, clients: int, bits: Bits) -> Array:
    a = np.asarray(a, dtype=np.float64)
    wide = not bound.all()
    limit = _WIDEST if wide else bound
    beyond = ~(np.abs(a) <= limit)  # The comparison is False for NaN, so NaN is beyond the limit.
    if beyond.any():
        raise DataError(_text_on_size(name, float(np.broadcast_to(limit, a.shape)[beyond].max()), wide=wide))
    if wide:
        steps = np.ldexp(a, _FRACTION).ravel()
        # A number may be so large that a float cannot represent fractions of a step. Its fraction is then 0, and all of
        # the noise is still added.
        rest = np.floor(steps)
        return _spread_over_words(rest, _round_with_dither(steps, rest, bits), clients)
    rows = _as_matrix(a)
    whole = np.empty(rows.shape, dtype=np.int64)
    exponents = np.broadcast_to(_step_exponents(bound, clients), a.shape).reshape(rows.shape)
    few = max(1, _AT_ONCE // max(rows.shape[1], 1))
    for start in range(0, len(rows), few):
        part = slice(start, start + few)
        steps = np.ldexp(rows[part], exponents[part])
        rest = np.floor(steps)
        out = whole[part]
        np.add(rest.astype(np.int64), _round_with_dither(steps, rest, bits), out=out)
    return whole.ravel().view(np.uint64)


def _text_on_size(name: str, limit: float, *, wide: bool) -> str:
    """Return the error for an entry that exceeds its limit.

    The bound in the settings of the masks does not apply to the opening, so it is no remedy for rows whose squares the
    wide form cannot represent. If a sum of squares is too small for the wide form, it becomes 0.
    """
    scale = "so this client sent nothing. Scale the data, for example so that most numbers are between 0.001 and 1,000."
    if wide:
        return f"{name} of this client has an entry that is not finite or too large for masked sums, {scale}"
    if limit < _OF_NOTHING:
        return (
            f"{name} of this client has an entry that is too small for masked sums: the squares of a column add up to "
            f"less than {_NOISE_LIMIT * _NOISE_STEPS * 2.0**-_FRACTION:.0e}, and become 0, {scale}"
        )
    return (
        f"{name} of this client has an entry that is not finite or exceeds {limit:.3g}, the bound of the masks, so "
        "this client sent nothing. Scale the data, or give MaskedSums a larger bound."
    )


def _as_matrix(a: Array) -> Array:
    a = np.atleast_1d(a)
    return a.reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _round_with_dither(steps: Array, rest: Array, bits: Bits) -> Array:
    """Return the fractions of steps plus noise, rounded to whole steps. The noise is not added to the whole part."""
    steps -= rest
    steps += _NOISE_STEPS * draw_normals(steps.size, bits).reshape(steps.shape)
    return np.rint(steps, out=steps).astype(np.int64)


def _spread_over_words(rest: Array, grain: Array, clients: int) -> Array:
    """Split whole numbers into words of 48 bits, and add the noise to the last word."""
    words = []
    for place in reversed(range(_WORDS)):
        # The word is exact, because it consists of the leading bits of a float.
        word = np.trunc(np.ldexp(rest, -_BITS * place))
        rest = rest - np.ldexp(word, _BITS * place)
        words.append(word.astype(np.int64))
    words[-1] += grain
    most = MOST_CLIENTS // (2 * clients)  # half of the range that remains unused with this number of clients
    for high, low in itertools.pairwise(words):
        # These random numbers need no seed, even in simulations, because they cancel among the client's own words.
        drawn = system_bits(len(low)) % np.uint64(2 * most + 1)
        moved = drawn.astype(np.int64) - most
        high -= moved
        low += moved << _BITS
    return np.concatenate(words).view(np.uint64)


def _decode_array(words: Array, shape: tuple[int, ...], bound: Array, clients: int) -> Array:
    grain = _NOISE_LIMIT * _NOISE_STEPS * math.sqrt(clients)
    if (np.abs(words) > 2**_LIMIT).any():
        raise ProtocolError(
            "A masked sum looks like noise after its masks were removed, so at least one client sent wrong shares or "
            "received a different message. Check that all clients run the same flower_pca, and start the run again."
        )
    if bound.all():
        words = np.where(np.abs(words) <= grain, 0, words).reshape(shape)
        steps = words.astype(np.float64)
        return np.asarray(np.ldexp(steps, -_step_exponents(bound, clients)))
    parts = words.reshape(_WORDS, -1)
    # The sums are Python integers, because four words are longer than any integer of numpy.
    whole = [0] * parts.shape[1]
    for part in parts:
        whole = [(high << _BITS) + int(low) for high, low in zip(whole, part, strict=True)]
    values = [math.ldexp(value * (abs(value) > grain), -_FRACTION) for value in whole]
    return np.array(values).reshape(shape)
