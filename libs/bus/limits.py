"""What no adapter accepts, refused before anything is appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.bus.port import (
    MAX_MESSAGE_BYTES,
    MAX_METADATA_BYTES,
    BusError,
    MessageTooLarge,
    Outgoing,
    Partition,
    Position,
)

LAST_OFFSET = 2**62
"""No log gets there, and every adapter can store it."""


def check_sizes(outputs: Sequence[Outgoing]) -> None:
    """Refuse messages that are too large.

    Raises:
        MessageTooLarge: with the message's size and the limit.
    """
    for output in outputs:
        if len(output.value) > MAX_MESSAGE_BYTES:
            raise MessageTooLarge(
                f"message {output.key!r} for {output.topic} has {len(output.value)} bytes, "
                f"at most {MAX_MESSAGE_BYTES} are accepted"
            )


def check_positions(positions: Mapping[Partition, Position]) -> None:
    """Refuse positions that cannot be kept.

    Raises:
        BusError: an offset that no log has, or metadata that is too long.
    """
    for partition, position in positions.items():
        place = f"position in {partition.topic}/{partition.index}"
        if not 0 <= position.next_offset <= LAST_OFFSET:
            raise BusError(f"{place}: offset {position.next_offset}, expected 0 to {LAST_OFFSET}")
        size = len(position.metadata.encode())
        if size > MAX_METADATA_BYTES:
            raise BusError(f"{place}: metadata of {size} bytes, at most {MAX_METADATA_BYTES} are accepted")


def check_before(partition: Partition, before: int, end: int) -> None:
    """Refuse to remove what was never appended.

    Raises:
        BusError: `before` is negative or lies behind the partition's end.
    """
    if not 0 <= before <= end:
        place = f"{partition.topic}/{partition.index}"
        raise BusError(f"{place}: cannot remove what precedes offset {before}; expected 0 to its end, {end}")
