"""Reading what users feed the simulator."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from libs.contracts.bad_input import BadInput

Warn = Callable[[str], None]
"""Takes one sentence about something that was ignored."""
MOST_WHOLE = 2**53
"""Whole numbers above are taken for mistakes; up to here they are exact everywhere."""


def warn_on_stderr(sentence: str) -> None:
    """The default for warnings."""
    print(f"warning: {sentence}", file=sys.stderr)


@contextmanager
def open_input(source: str | Path) -> Iterator[tuple[IO[str], str]]:
    """The text of a file, or of standard input for `-`, and the name to use in messages.

    Raises:
        BadInput: there is no such file, it cannot be read, or it is not UTF-8.
    """
    name = "standard input" if str(source) == "-" else str(source)
    try:
        if str(source) == "-":
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="")
            yield sys.stdin, name
        else:
            with open(source, encoding="utf-8-sig", newline="") as file:
                yield file, name
    except OSError as error:
        raise BadInput(name, error.strerror or str(error), "a readable file") from None
    except UnicodeDecodeError as error:
        raise BadInput(name, f"byte {error.start} is not UTF-8", "a text file in UTF-8") from None


def finite(value: object) -> float | None:
    """The number that a JSON value is, or None when it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
