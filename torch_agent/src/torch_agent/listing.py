"""The files of a folder that a task may fill as it likes, as far as they can be looked at several times a second."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path

from torch_agent.once import warn_once

MOST_ENTRIES = 100_000
"""Some hundredths of a second to list; a process that ends by a signal leaves a file of its own."""


def listed(folder: Path, name: re.Pattern[str], most: int) -> list[Path]:
    """The entries of a folder with names that fit as a whole, in no order; none where it is gone.

    None either, with a warning, where more than `most` fit, or the folder has more than MOST_ENTRIES: no task needs so
    many, and other tasks wait meanwhile.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
    except OSError:
        return []
    fit = [each for each in names if name.fullmatch(each)]
    if len(names) > MOST_ENTRIES or len(fit) > most:
        warn_once(f"{folder}: more than {MOST_ENTRIES} files, or {most} like {name.pattern}: they are not looked at")
        return []
    return [folder / each for each in fit]
