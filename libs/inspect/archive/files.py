"""Files that are either whole or not there, whatever is killed while they are written."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from libs.contracts.bad_input import BadInput

UNFINISHED = ".unfinished"
"""Ends the names of files that are being written; what is left of them after a crash is written over."""
LOCK = "archive.lock"
_CHUNK_BYTES = 1 << 20


class FileSum(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the archive, as `sha256sum` sees it."""

    name: str
    bytes: int
    sha256: str


def unfinished(directory: Path, name: str) -> Path:
    """Where a file is written before it is published."""
    return directory / (name + UNFINISHED)


def publish(directory: Path, name: str) -> FileSum:
    """Give a file that was written as `unfinished` its name; it is on the disk when this returns."""
    path = unfinished(directory, name)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    found = sum_of(path)
    os.replace(path, directory / name)
    sync_directory(directory)
    return msgspec.structs.replace(found, name=name)


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sum_of(path: Path) -> FileSum:
    """Size and SHA-256 of a file."""
    sha256, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha256.update(chunk)
            size += len(chunk)
    return FileSum(name=path.name, bytes=size, sha256=sha256.hexdigest())


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory: only one process at a time adds to an archive.

    Raises:
        BadInput: another one does.
    """
    with (directory / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(str(directory), "another process archives into it now", "one at a time") from None
        yield
