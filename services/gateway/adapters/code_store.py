"""Uploaded working directories: tar.gz files, named by their content."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from libs.kernel import ids

MAX_MEMBERS = 100_000
"""Files, folders and links of one upload."""
_CHUNK = 1 << 20


class CodeRefused(Exception):
    """The upload is no acceptable tar.gz; the message says which member and why."""


@dataclass(frozen=True)
class StoredCode:
    """One uploaded working directory."""

    code_id: str
    bytes: int
    files: int
    new: bool


class CodeStore:
    """Files in one folder. An upload appears whole or not at all.

    Args:
        folder: made when it is needed.
        max_unpacked_bytes: what an upload may become when unpacked.
    """

    def __init__(self, folder: Path, max_unpacked_bytes: int) -> None:
        self._folder, self._max_unpacked = folder, max_unpacked_bytes

    def path(self, code_id: str) -> Path | None:
        """The file of an uploaded directory, or None."""
        path = self._folder / f"{code_id}.tar.gz"
        return path if path.is_file() else None

    async def put(self, chunks: AsyncIterator[bytes]) -> StoredCode:
        """Store an upload.

        Raises:
            CodeRefused: it is no tar.gz, unpacks to too much, or holds what must not be unpacked.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".upload-")
        temporary = Path(name)
        try:
            digest, size = hashlib.sha256(), 0
            with os.fdopen(handle, "wb") as file:
                async for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    await anyio.to_thread.run_sync(file.write, chunk)
            files = await anyio.to_thread.run_sync(inspect, temporary, self._max_unpacked)
            code_id = ids.code_id(digest.digest())
            new = self.path(code_id) is None
            if new:
                temporary.chmod(0o644)
                temporary.replace(self._folder / f"{code_id}.tar.gz")
            return StoredCode(code_id, size, files, new)
        finally:
            temporary.unlink(missing_ok=True)


def inspect(path: Path, max_unpacked_bytes: int) -> int:
    """Look through an archive without unpacking it.

    Returns:
        The number of its files.

    Raises:
        CodeRefused: see `CodeStore.put`.
    """
    try:
        with gzip.open(path) as unpacking:
            files = _count_files(unpacking, max_unpacked_bytes)
            while unpacking.read(_CHUNK):  # to the checksum at the very end
                if unpacking.tell() > 2 * max_unpacked_bytes:
                    raise CodeRefused(f"it unpacks to more than {max_unpacked_bytes} bytes")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise CodeRefused(f"it is no tar.gz: {error}") from None
    return files


def _count_files(unpacking: gzip.GzipFile, max_unpacked_bytes: int) -> int:
    files = unpacked = 0
    with tarfile.open(fileobj=unpacking, mode="r|") as archive:
        for number, member in enumerate(archive, start=1):
            if defect := _defect(member):
                raise CodeRefused(f"member {member.name[:200]!r} {defect}")
            files += member.isfile()
            unpacked += member.size
            if unpacked > max_unpacked_bytes:
                raise CodeRefused(f"it unpacks to more than {max_unpacked_bytes} bytes")
            if number > MAX_MEMBERS:
                raise CodeRefused(f"it has more than {MAX_MEMBERS} members")
    return files


def _defect(member: tarfile.TarInfo) -> str:
    """What is wrong with a member; empty when nothing is."""
    if _leads_out(member.name):
        return "leads out of the directory"
    if member.issym() and _leads_out(os.path.join(os.path.dirname(member.name), member.linkname)):
        return f"links out of the directory, to {member.linkname[:200]!r}"
    if member.islnk() and _leads_out(member.linkname):
        return f"links out of the directory, to {member.linkname[:200]!r}"
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return "is neither a file nor a directory nor a link"
    return ""


def _leads_out(name: str) -> bool:
    return name.startswith("/") or os.path.normpath(name).split(os.sep)[0] == ".."
