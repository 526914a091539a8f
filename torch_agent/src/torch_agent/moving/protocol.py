"""What both sides of a transfer say."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from hashlib import blake2b

CHUNK = 1 << 20
DIGEST_SIZE = 32


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's state, please."""

    job_id: str
    attempt: int
    rank: int


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What follows: so many bytes and their checksum; or nothing, because of an error."""

    state_bytes: int = 0
    error: str = ""
    later: bool = False
    """The state cannot be had yet."""


def line(message: Request | Head) -> bytes:
    """As it is sent."""
    return msgspec.json.encode(message) + b"\n"


def checksum() -> blake2b:
    """Of the bytes of a state."""
    return hashlib.blake2b(digest_size=DIGEST_SIZE)
