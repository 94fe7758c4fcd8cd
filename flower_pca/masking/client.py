"""The client's half of masked sums: a state machine that keeps its state in the client's memory.

No step is repeated. A set-up begins with new secrets, and a client uploads and unmasks each sum of the set-up only
once. Of the two shares that it holds for a peer, the client reveals only one. After unmasking, it deletes the secrets
of the sum.

The client's memory for its stage is bound to all messages that the client has answered: see `messages.next_course`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from flower_pca import registry
from flower_pca.base.errors import DataError, ProtocolError
from flower_pca.base.linalg import Array
from flower_pca.core.kinds import Message, Part
from flower_pca.core.layer import Sayings, flatten_layers
from flower_pca.core.stage import Arrays
from flower_pca.layers import NOISE
from flower_pca.masking import agreement, coverage, fixed, messages, primitives, shares
from flower_pca.masking.dither import DitherSource, system_dither
from flower_pca.masking.identity import NAME
from flower_pca.masking.messages import (
    NOTHING,
    Phase,
    SumConditions,
    bytes_as_array,
    course_after_answer,
    next_course,
    require_valid_message,
    rows_as_texts,
    stage_memory,
    texts_as_rows,
)
from flower_pca.masking.primitives import KEY, SEED
from flower_pca.masking.secrets import SetupSecrets
from flower_pca.rows.frame import Frame
from flower_pca.rows.local import LocalData
from flower_pca.rows.stream import Stream
from flower_pca.vertical.rows import PartyColumns

_ANYBODY: Final = SumConditions()  # the conditions of a node that accepts any peers


class ClientHalf(Protocol):
    """A function that computes a client's answer and its new memory for a stage.

    The server sees the answer only in a sum over at least `summed` clients.
    """

    def __call__(
        self, stage: str, arrays: Arrays, data: LocalData | Stream, memory: Arrays, /, *, summed: int
    ) -> tuple[Arrays, Arrays]:
        """Return the client's answer, and the memory to keep."""


def protocol_answer(
    arrays: Arrays,
    layers: Sayings,
    data: LocalData | Stream,
    memory: Arrays,
    stage: ClientHalf,
    demands: SumConditions = _ANYBODY,
    dither: DitherSource = system_dither,
) -> tuple[Arrays, Arrays]:
    """Return a client's answer to a message of the protocol, and the memory that the client keeps.

    Parameters
    ----------
    arrays : Arrays
        The arrays of the message.
    layers : Sayings
        The arrays of the message's layers.
    data : LocalData or Stream
        The client's rows, in the message's frame.
    memory : Arrays
        The memory that the client has kept.
    stage : ClientHalf
        The function that computes the client's half of the inner stage for an upload.
    demands : SumConditions
        The conditions under which the client takes part in a sum.
    dither : DitherSource
        A function that takes a digest of the message and returns the source of random bits for the noise that hides the
        rounding to fixed point.
    """
    own, before, secrets = (
        messages.stage_arrays(memory),
        messages.previous_memory(memory),
        SetupSecrets.from_memory(memory),
    )
    step = Phase(int(arrays["mask.step"]))
    if step == Phase.KEYS:
        courses = (NOTHING, NOTHING) if secrets is None else (secrets.past.tobytes(), secrets.earlier.tobytes())
        up, secrets = _answer_with_keys(arrays, data, demands, courses)
        return up, {**messages.with_previous_memory(own, before), **secrets.to_memory()}
    if secrets is None or secrets.setup.tobytes() != arrays["mask.setup"].tobytes():
        # The client does not refuse the message, because the server would then exclude it for the rest of the run.
        return {"mask.lost": np.array(1)}, memory
    if step == Phase.SHARES:
        up, secrets = _answer_with_shares(arrays, data, secrets, demands)
        own, secrets = _moved_to_course(arrays["mask.course"].tobytes(), own, before, secrets)
    elif step == Phase.UPLOAD:
        secrets = _check_upload_request(arrays, data, secrets, demands)
        name, past = messages.inner_stage(arrays) or "", secrets.past.tobytes()
        fixed.check_client_count(arrays, secrets)
        summed = secrets.min_uploads_in_sum
        if (noise := layers.get(NOISE)) is not None:
            summed = demands.max_noise_sharers(summed)
            fixed.check_bounds_for_noise(arrays, _parts_of_stage(name, arrays, data.d), noise, summed)
        counted = stage_memory(own, past, name)
        up, own = _ask_stage(stage, name, arrays, data, counted, summed)
        if messages.answers_from_memory(name):
            before, secrets = messages.memory_for_repeat(counted, name), replace(secrets, earlier=secrets.past)
        # The digest includes the layers' arrays, so that masks do not cancel if the server has asked one client for
        # less noise than the other clients.
        every = {**arrays, **flatten_layers(layers)} if layers else arrays
        said = messages.digest_of_message(every, _frame_in_digest(data, noisy=NOISE in layers))
        newest = next_course(past, said, name)
        y = fixed.encode_answer(arrays, up, own, dither(said))
        up, secrets = _answer_with_upload(arrays, secrets, y, newest)
        secrets = replace(secrets, past=bytes_as_array(course_after_answer(own, past, newest, name)))
        up["mask.kept"] = secrets.past
    else:
        up, secrets = _answer_with_mask_shares(arrays, secrets, demands)
    return up, {**messages.with_previous_memory(own, before), **secrets.to_memory()}


def _moved_to_course(
    course: bytes, memory: Arrays, previous_memory: Arrays, secrets: SetupSecrets
) -> tuple[Arrays, SetupSecrets]:
    """Return the client's memory and secrets for the course that a set-up names.

    If this is the client's present course, nothing changes. If it is the course before the newest answer, the client
    returns to its memory from before this answer. For any other course, the present memory counts as empty.
    """
    if course == secrets.past.tobytes():
        return memory, secrets
    if course == secrets.earlier.tobytes():
        return messages.restore_previous_memory(memory, previous_memory), replace(secrets, past=secrets.earlier)
    return memory, replace(secrets, past=bytes_as_array(NOTHING))


def _frame_in_digest(data: LocalData | Stream, *, noisy: bool) -> Frame:
    """Return the frame that enters the digest of the message.

    For a stream, this frame contains only the columns' names. In a run over columns, it contains only how the columns
    are prepared. Under noise, it contains no replacement of missing values, because each node chooses its own.
    """
    if isinstance(data, Stream):
        return Frame(names=data.wanted)
    if isinstance(data, PartyColumns):
        return Frame(split=data.split)
    if noisy:
        return replace(data.frame, fill=None, own=False)
    return data.frame


def _parts_of_stage(name: str, arrays: Arrays, d: int | None) -> Mapping[str, Part]:
    """Return the parts of a stage's answer. Return no parts for an unknown stage, because it is refused later."""
    if name not in registry.STAGES:
        return {}
    return registry.STAGES[name].parts(Message(messages.stage_arrays(arrays)), d)


def _ask_stage(
    stage: ClientHalf, name: str, arrays: Arrays, data: LocalData | Stream, memory: Arrays, summed: int
) -> tuple[Arrays, Arrays]:
    """Return the answer and the memory that the client's half of the stage has computed.

    Raises
    ------
    SpentError
        If the rows allow no answer. The missing answer reveals something about this client, so it counts as a loss.
    """
    try:
        return stage(name, Message(messages.stage_arrays(arrays)), data, memory, summed=summed)
    except DataError as error:
        raise messages.SpentError(str(error), memory) from error
    except (ArithmeticError, ValueError) as error:  # LAPACK may fail for unusual rows or messages.
        words = (
            f"The answer under masks cannot be computed from this node's rows ({type(error).__name__}), so this node "
            "sent nothing. Run flower-pca check on its rows."
        )
        raise messages.SpentError(words, memory) from error


def _answer_with_keys(
    arrays: Arrays, data: LocalData | Stream, demands: SumConditions, courses: tuple[bytes, bytes]
) -> tuple[Arrays, SetupSecrets]:
    setup, single = arrays["mask.setup"], messages.has_no_self_masks(arrays)
    right = setup.shape == (SEED,) and setup.dtype == np.uint8
    require_valid_message(right, f"The name of this set-up does not have {SEED} bytes.")
    exchange, own = primitives.new_secret(), _new_seeds(2 - single)
    keys = primitives.public_key(exchange), primitives.public_key(own[-SEED:])
    signature = demands.sign(messages.text_of_publication(setup.tobytes(), *keys))
    d = data.d
    # The first batch of a stream is read here only if the server does not know the number of columns yet. Otherwise,
    # the batch is left for the stage.
    if isinstance(data, Stream) and "mask.d" not in arrays:
        d = data.columns()
    past, earlier = map(bytes_as_array, courses)
    up = {
        "mask.exchange": bytes_as_array(keys[0]),
        "mask.key": bytes_as_array(keys[1]),
        "mask.d": np.array(d or 0, dtype=np.int64),
        "mask.signature": bytes_as_array(signature),
        "mask.past": past,
        "mask.earlier": earlier,
    }
    begun = SetupSecrets.begin(
        setup=setup,
        single=np.array(single),
        exchange=bytes_as_array(exchange),
        own=bytes_as_array(own),
        past=past,
        earlier=earlier,
    )
    return up, begun


def _answer_with_shares(
    arrays: Arrays, data: LocalData | Stream, secrets: SetupSecrets, demands: SumConditions
) -> tuple[Arrays, SetupSecrets]:
    _require_step(secrets, int(secrets.step) == Phase.SHARES)
    position, peers = int(arrays["mask.position"]), _distinct_numbers(arrays["mask.peers"])
    seed = secrets.exchange.tobytes()
    exchange, mine = primitives.private_key(seed), primitives.public_key(seed)
    keys, needed = rows_as_texts(arrays["mask.exchanges"]), int(arrays["mask.needed"])
    group = len(peers) + 1
    # Without this check, a server could take the place of all peers with a single key.
    others = len({*keys, mine}) == group == len(keys) + 1 and position not in peers
    require_valid_message(others and group > 1, "This set-up has fewer than two clients, or names a client twice.")
    # If half of the clients or fewer were enough, a server could ask one group of clients for a peer's shares of the
    # self-mask, and another group for the shares of the mask key.
    require_valid_message(
        2 * needed > group >= needed,
        "This set-up requires too few survivors (half of its clients or fewer) or more survivors than clients.",
    )
    demands.check_peers(peers)
    named: dict[int, bytes] = {}
    if demands.identity is not None:
        published = agreement.publications(arrays, secrets.setup.tobytes(), peers, keys)
        named = demands.identity.check(*published)
    names = texts_as_rows([named.get(peer, bytes(NAME)) for peer in peers], NAME)
    demands.check_group(rows_as_texts(names))
    agreed = agreement.text_to_sign(arrays, secrets.setup.tobytes(), demands.run, mine)
    pairs = [shares.letter_secrets(primitives.shared_secret(exchange, key), mine, key) for key in keys]
    secrets = replace(
        secrets,
        needed=np.array(needed),
        position=np.array(position),
        peers=arrays["mask.peers"],
        exchange=np.empty(0, dtype=np.uint8),
        common=texts_as_rows(pairs, 2 * KEY),
        step=np.array(int(Phase.UPLOAD)),
        names=names,
        agreed=bytes_as_array(agreed),
    )
    sealed, own, _ = shares.deal_shares(secrets, 0, secrets.own.tobytes(), peers)
    up = {"mask.shares": sealed, "mask.agreed": bytes_as_array(demands.sign(agreed))}
    if demands.least_values is not None and coverage.describes_columns(data):
        up[coverage.LETTERS] = coverage.seal_letters(secrets, coverage.letter_text(data, demands.least_values), peers)
    return up, replace(secrets, own=bytes_as_array(own))


def _check_upload_request(
    arrays: Arrays, data: LocalData | Stream, secrets: SetupSecrets, demands: SumConditions
) -> SetupSecrets:
    """Check a message that asks for an upload. Return the secrets, with the shares that peers have sent for the sum."""
    number = int(arrays["mask.number"])
    # If the client still waits for UNMASK, the last sum was unmasked without it.
    if int(secrets.step) == Phase.UNMASK:
        secrets = _secrets_for_next_sum(secrets)
    due = int(secrets.step) == Phase.UPLOAD and number == int(secrets.number)
    _require_step(secrets, due)
    peers, keys = _distinct_numbers(arrays["mask.peers"]), rows_as_texts(arrays["mask.keys"])
    needed = int(secrets.needed)
    known = set(secrets.peers.tolist())
    enough = len(peers) + 1 >= needed and set(peers) <= known
    require_valid_message(
        enough, f"This sum has fewer than {needed} clients, or clients that do not belong to its set-up."
    )
    # Without self-masks, the upload alone may reveal the sum, because no UNMASK message has to follow.
    _require_allowed_group(secrets, peers, demands, reveals=bool(secrets.single))
    vouched = agreement.check_vouchers(arrays, secrets, peers, demands)
    mine = primitives.public_key(secrets.mask_key_seed)
    different = len({*keys, mine}) == len(peers) + 1 == len(keys) + 1
    require_valid_message(different, "This sum does not have exactly one key from each client, all different.")
    named = messages.inner_stage(arrays) not in (None, messages.STAGE)
    require_valid_message(named, "The requested upload belongs to no stage of an algorithm.")
    parts = shares.open_shares(secrets, number, peers, keys, arrays["mask.shares"])
    deposits = texts_as_rows(parts, secrets.seeds_per_sum * SEED)
    if demands.least_values is not None and coverage.describes_columns(data):
        secrets = _with_column_letters(arrays, data, secrets, peers, demands)
        _require_measured(secrets, peers, demands, coverage.names_of(data))
    return replace(secrets, holders=arrays["mask.peers"], deposits=deposits, vouched=vouched)


def _with_column_letters(
    arrays: Arrays, data: LocalData, secrets: SetupSecrets, peers: list[int], demands: SumConditions
) -> SetupSecrets:
    """Return the secrets with all letters about columns. Letters from peers arrive with the first upload message."""
    assert demands.least_values is not None
    own = np.frombuffer(coverage.letter_text(data, demands.least_values), dtype=np.uint8)
    known = secrets.columns[:-1]
    if int(secrets.number) == 0:
        known = coverage.unseal_letters(secrets, arrays, peers, coverage.all_columns_of(data).d)
    require_valid_message(
        known.shape[1:] == own.shape, "The columns of this masked sum differ from the columns of its set-up."
    )
    return replace(secrets, columns=np.concatenate([known, own[None]]))


def _require_measured(
    secrets: SetupSecrets, present: list[int], demands: SumConditions, names: tuple[str, ...] | None = None
) -> None:
    """Require that enough of these peers have rows, and if the node demands it, that they have measured the columns."""
    written = dict(zip(secrets.peers.tolist(), secrets.columns[:-1], strict=True))
    said = np.array([written[peer] for peer in present], dtype=np.uint8)
    coverage.require_rows(secrets.columns[-1], said, demands.min_peers)
    if demands.measured:
        coverage.require_measured_columns(secrets.columns[-1], said, demands.min_peers, names)


def _answer_with_upload(arrays: Arrays, secrets: SetupSecrets, y: Array, newest: bytes) -> tuple[Arrays, SetupSecrets]:
    number, peers = int(secrets.number), secrets.holders.tolist()
    y = _mask_upload(y, secrets, number, peers, rows_as_texts(arrays["mask.keys"]), newest)
    # Every sum needs new mask keys. Otherwise, the server could unmask this upload if the client drops out of a later
    # sum: it would then restore the common key, and it already knows this sum's self-mask.
    seeds = _new_seeds(secrets.seeds_per_sum)
    sealed, own, key = shares.deal_shares(secrets, number + 1, seeds, peers)
    secrets = replace(secrets, step=np.array(int(Phase.UNMASK)), coming=bytes_as_array(own))
    up = {"mask.y": y, "mask.shares": sealed, "mask.key": bytes_as_array(key), "mask.past": bytes_as_array(newest)}
    return up, secrets


def _answer_with_mask_shares(
    arrays: Arrays, secrets: SetupSecrets, demands: SumConditions
) -> tuple[Arrays, SetupSecrets]:
    due = int(arrays["mask.number"]) == int(secrets.number)
    _require_step(secrets, due and int(secrets.step) == Phase.UNMASK)
    survived, dropped = _distinct_numbers(arrays["mask.survived"]), _distinct_numbers(arrays["mask.dropped"])
    # Each peer must be in exactly one of the two lists. For a peer in both lists, the client would reveal both shares.
    whole = sorted(survived + dropped) == sorted(secrets.holders.tolist())
    require_valid_message(
        whole, "The survivors and dropped clients in this message are not exactly the clients of this sum."
    )
    needed = int(secrets.needed)
    require_valid_message(
        len(survived) + 1 >= needed, f"Fewer than {needed} clients are named as survivors of this sum."
    )
    _require_allowed_group(secrets, survived, demands, reveals=True)
    if secrets.columns.size:
        _require_measured(secrets, survived, demands)
    shares = dict(zip(secrets.holders.tolist(), rows_as_texts(secrets.deposits), strict=True))
    keys = [shares[peer][-SEED:] for peer in dropped]
    up = {"mask.keys": texts_as_rows(keys, SEED)}
    if not secrets.single:
        own = secrets.own.tobytes()[2 * SEED : 3 * SEED]
        selves = [shares[peer][:SEED] for peer in survived]
        up["mask.selves"] = texts_as_rows([own, *selves], SEED)
    return up, _secrets_for_next_sum(secrets)


def _secrets_for_next_sum(secrets: SetupSecrets) -> SetupSecrets:
    """Return the secrets for the next sum. The secrets of the finished sum are deleted."""
    none = np.empty(0, dtype=np.uint8)
    step = np.array(int(Phase.UPLOAD))
    number = np.array(int(secrets.number) + 1)
    return replace(secrets, step=step, number=number, own=secrets.coming, coming=none, holders=none, deposits=none)


def _mask_upload(
    y: Array, secrets: SetupSecrets, number: int, peers: list[int], keys: list[bytes], newest: bytes
) -> Array:
    """Return y under masks: y + PRG(b) + the sum of PRG(k_ij) for j > i - the sum of PRG(k_ij) for j < i.

    i is the client's position, k_ij is the key that it shares with the peer at position j, and b is the seed of its
    self-mask. Without self-masks, PRG(b) is left out.
    """
    position = int(secrets.position)
    setup = secrets.setup.tobytes()
    private = primitives.private_key(secrets.mask_key_seed)
    derived = []
    for peer, key in zip(peers, keys, strict=True):
        context = messages.context_of_pair_mask(setup, newest, number, *sorted((position, peer)))
        derived.append(primitives.derive_key(primitives.shared_secret(private, key), context))
    for peer, mask in zip(peers, primitives.masks_of_keys(derived, len(y)), strict=True):
        (np.add if peer > position else np.subtract)(y, mask, out=y)
    if not secrets.single:
        alone = messages.context_of_self_mask(setup, number, position)
        key = primitives.derive_key(secrets.own.tobytes()[:SEED], alone)
        y += primitives.mask_of_key(key, len(y))
    return y


def _require_allowed_group(secrets: SetupSecrets, present: list[int], demands: SumConditions, *, reveals: bool) -> None:
    """Require that the node's conditions allow a sum with exactly these peers.

    `reveals` states whether the server learns the sum from the node's next answer.
    """
    demands.check_peers(present)
    if demands.admit is None:
        return
    names = dict(zip(secrets.peers.tolist(), rows_as_texts(secrets.names), strict=True))
    demands.check_group((names[peer] for peer in present), reveals=reveals)


def _new_seeds(count: int) -> bytes:
    return b"".join([primitives.new_secret() for _ in range(count)])


def _distinct_numbers(a: Array) -> list[int]:
    numbers = list(map(int, a))
    require_valid_message(len(set(numbers)) == len(numbers), "The message names a client twice.")
    return numbers


def _require_step(secrets: SetupSecrets, expected: bool) -> None:
    if not expected:
        phase = Phase(int(secrets.step)).name.lower()
        due = int(secrets.number)
        raise ProtocolError(
            f"This masked message is out of turn or repeated, because this node next expects the phase {phase} of sum "
            f"{due}. {messages.ASK_SERVER}"
        )
