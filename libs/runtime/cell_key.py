"""The secret that the gateway and the agents of a cell share, in a file of its own.

With it the gateway signs what it asks of agents (`libs/node/serving.py`). It never stands on the log, in an argument or
in an environment variable.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

SHORTEST = 32


class KeyUnreadable(Exception):
    """The file cannot serve as a cell's key; the message says which and why."""


def read_key(path: Path) -> bytes:
    """The key.

    Raises:
        KeyUnreadable: the file is not there, may be read by other users, or is too short to be a secret.
    """
    try:
        key, mode = path.read_bytes().strip(), path.stat().st_mode
    except OSError as error:
        raise KeyUnreadable(f"the cell's key {path} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise KeyUnreadable(f"the cell's key {path} can be read by other users (mode {mode & 0o777:o}); expected 600")
    if len(key) < SHORTEST:
        raise KeyUnreadable(f"the cell's key {path} has {len(key)} bytes; expected {SHORTEST} or more")
    return key


def ensure_key(path: Path) -> None:
    """Make a key unless there is one, readable by its owner alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(SHORTEST) + "\n")
