"""Numbers in messages that users read, and words that agree with them: `1 GPU is free`, `2 GPUs are free`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta


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


def some(names: Sequence[str], most: int = 3) -> str:
    """`ada, bob and 4 more`: so many of the names, and how many there are beside these."""
    more = len(names) - most
    return f"{', '.join(names[:most])} and {more} more" if more > 0 else ", ".join(names)


def moment(time_s: float) -> str:
    """`2026-11-20 22:14:03 UTC`; `time_s`: seconds since the epoch."""
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def ranges(indices: Iterable[int]) -> str:
    """`0-2,5` for 0, 1, 2, 5: in their order, consecutive ones as a range."""
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


_UNITS = {"": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for ending, base in (("", 1024), ("iB", 1024), ("B", 1000))
}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([KMGTkmgt]i?[Bb]?|[KMGTkmgt]?)")


def bytes_in(text: str, unit: str = "") -> int | None:
    """`32GB` (10^9), `32GiB` and, as with Slurm, `32G` (2^30); `unit` is that of a number without one.

    Returns:
        Bytes; None: the text is of another form.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    letters = found[2] or unit
    named = letters[:1].upper() + letters[1:].replace("b", "B")
    return int(float(found[1]) * _UNITS[named]) if named in _UNITS else None


def bytes_of(number: float) -> str:
    """`1.5 GiB`, `12 MiB`, `3 KiB`, `17 B`."""
    if number >= 2**30:
        return f"{number / 2**30:.1f} GiB"
    if number >= 2**20:
        return f"{number / 2**20:.0f} MiB"
    return f"{number / 2**10:.0f} KiB" if number >= 2**10 else f"{number:.0f} B"


def lines_of_wait(waits_s: Mapping[str, float], waits_for: str, behind: str) -> list[str]:
    """Of a job: what it waits for, and for how long so far by cause; none where it has not waited.

    Args:
        waits_s: {cause: seconds}.
        waits_for: the cause that counts now.
        behind: the job that goes first; empty: none.
    """
    shown = [f"  behind {behind}, which waits for {waits_for}"] if behind else []
    spent = [f"{cause} {waited_s:.0f} s" for cause, waited_s in sorted(waits_s.items(), key=lambda each: -each[1])]
    return [*shown, f"  has waited {sum(waits_s.values()):.0f} s: {', '.join(spent)}"] if spent else shown


def off_by(skew_s: float) -> str:
    """`1:00:03 ahead`, `2 days, 0:00:00 behind`: a clock against the right one."""
    return f"{timedelta(seconds=round(abs(skew_s)))} {'ahead' if skew_s > 0 else 'behind'}"
