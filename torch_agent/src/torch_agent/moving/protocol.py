"""What both sides of a transfer say."""

from __future__ import annotations

import struct

import msgspec

CHUNK = 1 << 20
CHECKSUM = struct.Struct("<I")
"""CRC-32 of the bytes: against damage on the way, at twice the speed of any other here; not against malice."""


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
