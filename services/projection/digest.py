"""The digest of the read model: what its rows depend on, beside the log."""

from __future__ import annotations

import hashlib
from functools import cache

from libs.inspect.rules import rules_of
from services.projection.tables import LIVE, schema_of


@cache
def read_model_digest() -> str:
    """32 hex digits over the tables (columns, types, indexes) and the fold; equal digests mean equal rows.

    The fold is `services.projection.core` with `libs.lifecycle`, which it folds jobs with, and whatever reads an event:
    rows keep whole events and specifications, so a new field there makes other rows of the same log, and so does an
    upcast.
    """
    fold = rules_of("services.projection.core", "libs.contracts.wire")
    return hashlib.blake2b(f"{schema_of(LIVE)}\n{fold}".encode(), digest_size=16).hexdigest()
