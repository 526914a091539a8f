"""Ids that follow from their cause: handling the same input twice yields the same ids."""

from __future__ import annotations

import base64
import hashlib
import uuid

_NAMESPACE = hashlib.sha1(uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8").bytes, usedforsecurity=False)
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""{hex digit: the one with its two lower bits, and the upper ones that RFC 9562 prescribes}."""


def _uuid5(name: str) -> str:
    """As `uuid.uuid5`, without an object in between: every event on every log has one of these."""
    digest = _NAMESPACE.copy()
    digest.update(name.encode())
    digits = digest.hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:32]}"


def derived_id(source: str, cause_id: str, ordinal: int) -> str:
    """Id of the `ordinal`-th output (from 0) that `source` makes of the event `cause_id`."""
    return _uuid5(f"sanjaya/{source}/{cause_id}/{ordinal}")


def request_id(source: str, key: str) -> str:
    """Id of a fact from outside that is named by a key of its own (idempotency key, journal number)."""
    return _uuid5(f"sanjaya/{source}/request/{key}")


def short_id(prefix: str, key: str) -> str:
    """A copyable id like `j-7f3akq2m5c3xw4np`, for jobs, arrays, DAGs and sweeps.

    It has 80 bits of the key's hash, in lower-case base 32.

    Earlier versions gave 50 bits (10 letters). Such ids stay on the logs that have them: no reader may assume a length.
    """
    return f"{prefix}-{_letters(key)}"


def member_id(group_id: str, member: str) -> str:
    """Id of a job of an array or a DAG, by the id of the whole and what names the job in it: its index or its name."""
    return short_id("j", f"{group_id}/{member}")


def code_id(sha256: bytes) -> str:
    """Id of an uploaded archive, of the SHA-256 of its content: 160 bits in lower-case base 32."""
    return f"c-{base64.b32encode(sha256[:20]).decode().lower()}"


def move_id(key: str) -> str:
    """Id of a move or a change of width, like `m-7f3akq2m5c`: 50 bits.

    Its length is part of what migration and placement decide: with another one, every recorded move would differ in
    the audit.
    """
    return f"m-{_letters(key)[:10]}"


def _letters(key: str) -> str:
    return base64.b32encode(hashlib.blake2b(key.encode(), digest_size=10).digest()).decode().lower()
