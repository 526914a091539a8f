"""Short forms that people write, turned into the full ones: `gpus: v100:2`, `elastic: 2:8`, `time_limit_s: 4:00:00`."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from libs.kernel.launchers import PER_GPU, PER_NODE
from libs.kernel.words import bytes_in

_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]{1,4}):([0-5][0-9])(?::([0-5][0-9]))?")
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_UNITS = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in "dhms"))


def gpus(value: Any) -> Any:
    """`4`, `"4"`, `"v100"`, `"v100:2"`, `"v100,a100:2"` or the object `{count, types, …}`.

    Raises:
        ValueError: none of these.
    """
    if isinstance(value, dict | BaseModel):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return {"count": value}
    if not isinstance(value, str):
        raise _unexpected('a number of GPUs, "type:number" or an object', value)
    types, _, count = value.strip().rpartition(":")
    if not types and not _is_number(count):
        types, count = count, "1"
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", count):
        raise _unexpected('a number of GPUs, "type:number" or an object', value)
    return {"count": int(count), "types": [part.strip() for part in types.split(",") if part.strip()]}


def _is_number(text: str) -> bool:
    """Also one that is no whole number: `1.5` is no GPU type."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def elastic(value: Any) -> Any:
    """`"2:8"` or the object `{min_gpus, max_gpus}`.

    Raises:
        ValueError: neither of these.
    """
    if isinstance(value, dict | BaseModel):
        return value
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*:\s*([0-9]{1,9})\s*", value) if isinstance(value, str) else None
    if found is None:
        raise _unexpected('"least:most" GPUs or an object', value)
    return {"min_gpus": int(found[1]), "max_gpus": int(found[2])}


MOST_INDICES = 10_000
"""Of one array."""
_INDICES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?")


def array(value: Any) -> Any:
    """`"0-99"`, `"1,3,7"`, `"0-99:10"` (every tenth), each perhaps with `%4` (four at once), or the object.

    Raises:
        ValueError: none of these, or more than 10,000 indices.
    """
    if isinstance(value, dict | BaseModel):
        return value
    expected = 'indices such as "0-99", "1,3,7" or "0-99:10", and perhaps "%4" behind them for four at once'
    if not isinstance(value, str):
        raise _unexpected(expected, value)
    text, percent, at_once = value.replace(" ", "").partition("%")
    if percent and not re.fullmatch(r"[1-9][0-9]{0,8}", at_once):
        raise _unexpected(expected, value)
    indices: dict[int, None] = {}
    for part in text.split(","):
        found = _INDICES.fullmatch(part)
        if found is None:
            raise _unexpected(expected, value)
        first = int(found[1])
        last = int(found[2]) if found[2] else first
        if last < first:
            raise ValueError(f"{part} ends before it begins")
        wanted = range(first, last + 1, int(found[3] or 1))
        if len(indices) + len(wanted) > MOST_INDICES:
            raise ValueError(f"an array has at most {MOST_INDICES} jobs")
        indices.update(dict.fromkeys(wanted))
    return {"indices": list(indices), "at_once": int(at_once) if percent else None}


def after(value: Any) -> Any:
    """`"prepare"`, `"prepare:any,j-7f3a:fail"`, a list of such texts, or of objects.

    Raises:
        ValueError: something between that is neither.
    """
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if not isinstance(value, list):
        raise _unexpected("JOB, JOB:any or JOB:fail, several with commas between or as a list", value)
    return [_dependency(part) for part in value]


def _dependency(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    on, colon, condition = value.strip().partition(":")
    return {"on": on, **({"condition": condition} if colon else {})}


def mounts(value: Any) -> Any:
    """`"imagenet"`, `"imagenet:/data"`, a list of such texts, or the object {name: path}.

    Raises:
        ValueError: none of these, or a name that stands there twice.
    """
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return value
    found: dict[str, str] = {}
    for part in value:
        if not isinstance(part, str):
            raise _unexpected("NAME or NAME:PATH", part)
        name, _, path = part.partition(":")
        if name in found:
            raise ValueError(f"{name} stands there twice")
        found[name] = path
    return found


def launcher(value: Any) -> Any:
    """`"per-gpu"` and `"per-node"` are what a specification calls `ranks` and `command`."""
    return {"per-gpu": PER_GPU, "per-node": PER_NODE}.get(value, value) if isinstance(value, str) else value


def command(value: Any) -> Any:
    """A list is run as it is; a string, also of several lines, is run by `/bin/sh -c`.

    Raises:
        ValueError: neither of these, or an empty string.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str) or not value.strip():
        raise _unexpected("a list of words or a line for the shell", value)
    return ["/bin/sh", "-c", value]


def seconds(value: Any) -> Any:
    """A number of seconds, `"90m"`, `"1h30m"`, `"4:00"` (hours:minutes) or `"2-12:00:00"` (days-hours:minutes:seconds).

    Raises:
        ValueError: a string of another form.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return float(max(min(value, 2**63), -(2**63)))
    if not isinstance(value, str):
        return value
    text = value.strip()
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if found := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    if text and (found := _UNITS.fullmatch(text)):
        parts = [float(part or 0) for part in found.groups()]
        return sum(part * unit for part, unit in zip(parts, (86400, 3600, 60, 1), strict=True))
    raise _unexpected('seconds, "1h30m" or "4:00:00"', value)


def size(value: Any) -> Any:
    """A number of bytes, `"32GB"` (10^9), or `"32GiB"` and `"32G"` (2^30).

    Raises:
        ValueError: a string of another form.
    """
    if not isinstance(value, str):
        return value
    found = bytes_in(value)
    if found is None:
        raise _unexpected('bytes, "32GB" or "32GiB"', value)
    return found


def _unexpected(expected: str, value: Any) -> ValueError:
    seen = f'"{value[:100]}"' if isinstance(value, str) else f"{value!r:.100}"
    return ValueError(f"expected {expected}, got {seen}")


def job_name(command: list[str]) -> str:
    """A name for a job without one: of its script, else of its program."""
    words = command[2].split() if command[:2] == ["/bin/sh", "-c"] and len(command) > 2 else command
    scripts = [word for word in words if re.search(r"\.(py|sh)$", word)]
    stem = PurePath((scripts or words or ["job"])[0]).stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:63] or "job"
