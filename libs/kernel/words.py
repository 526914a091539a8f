"""Numbers in messages that users read, and words that agree with them: `1 GPU is free`, `2 GPUs are free`."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, one: str, many: str = "") -> str:
    """The form of a noun, or of the words behind a number, that agrees with it.

    Args:
        number: how many there are.
        one: the form for exactly 1: `GPU`, `GPU is`.
        many: the form for all other numbers; by default `one` with an s.
    """
    return one if number == 1 else many or f"{one}s"


def counted(number: int, one: str, many: str = "") -> str:
    """The number and the form that agrees with it, as `plural`: `1 retry`, `0 retries`."""
    return f"{number} {plural(number, one, many)}"


def either(numbers: Sequence[int], one: str, many: str = "") -> str:
    """A choice of numbers, and the form that agrees with the last: `1 GPU`, `1 or 2 GPUs`; at least one number."""
    return f"{' or '.join(map(str, numbers))} {plural(numbers[-1], one, many)}"


def bytes_of(number: float) -> str:
    """`1.5 GiB`, `12 MiB`, `3 KiB`, `17 B`."""
    if number >= 2**30:
        return f"{number / 2**30:.1f} GiB"
    if number >= 2**20:
        return f"{number / 2**20:.0f} MiB"
    return f"{number / 2**10:.0f} KiB" if number >= 2**10 else f"{number:.0f} B"
