"""RuleKeywords: a node's rules as keywords, for the short forms. What each means, `policy.rules` says."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TypedDict


class RuleKeywords(TypedDict, total=False):
    """The attributes of `Rules` as keywords, for short forms."""

    allow: Collection[str] | None
    min_rows: int
    memory_dir: str | os.PathLike[str] | None
    output_dir: str | os.PathLike[str] | None
    share_own: bool
    min_noise: float | None
    max_clip: float | None
    masked_only: bool
    single_masks: bool
    unequal_numbers: bool
    sign_key: str | os.PathLike[str] | None
    trusted_keys: str | os.PathLike[str] | None
    max_messages: int | None
    max_messages_ever: int | None
    max_columns: int | None
    max_epsilon: float | None
    max_delta: float | None
    max_colluders: int
    min_peers: int
    max_groups: int | None
    max_lost: int | None
    share_names: bool
    split_columns: bool | str
    answers: str
    missing: str
    noise_seed: int | None
