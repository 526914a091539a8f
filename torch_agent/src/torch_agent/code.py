"""Uploaded working directories: fetched from the gateway once, checked, and unpacked per attempt."""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import http.client
import os
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from libs.bus.port import BusError
from libs.kernel import ids
from torch_agent.cell_gateway import CellGateway

TIMEOUT_S = 60.0
CHUNK = 1 << 20
DEEPEST = 200
"""Folders in folders: what reads or removes a tree goes down into each of them."""


class CodeUnavailable(Exception):
    """The code cannot be had; the message says from where and why."""


class CodeBroken(Exception):
    """The archive is there and is no directory that can be unpacked: it will be the same on every node."""


def unpack(code_id: str, gateway: CellGateway, cache: Path, target: Path) -> None:
    """Put the contents of an uploaded directory into `target`. Blocking: call it in a thread.

    Raises:
        CodeUnavailable: the gateway does not have it, or what it sent is not what the id says.
        CodeBroken: the archive cannot be unpacked, whatever the node does.
        OSError: the node cannot store it.
    """
    archive = _fetched(code_id, gateway, cache)
    try:
        with tarfile.open(archive) as tar:
            deepest = max((len(PurePosixPath(name).parts) for name in tar.getnames()), default=0)
            if deepest > DEEPEST:
                nested = f"it has {deepest} folders in each other; expected at most {DEEPEST}"
                raise CodeBroken(f"code {code_id} cannot be unpacked: {nested}")
            tar.extractall(target, filter="data")  # refuses absolute paths, links outside, devices
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CodeBroken(f"code {code_id} cannot be unpacked: {error}") from error
    except ValueError as error:  # names that are no names
        raise CodeBroken(f"code {code_id} cannot be unpacked: {type(error).__name__}: {error}") from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
            raise CodeBroken(f"code {code_id} cannot be unpacked: {error.strerror}: {error.filename}") from error
        raise


def _fetched(code_id: str, gateway: CellGateway, cache: Path) -> Path:
    """The archive in the cache. Tasks that need one upload at the same time wait for one fetch of it."""
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{code_id}.tar.gz"
    try:
        with (cache / f"{code_id}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(archive, code_id):
                _fetch(gateway, code_id, archive)
    except OSError as error:
        raise CodeUnavailable(f"code {code_id} cannot be kept in {cache}: {error}") from error
    return archive


def _is_whole(archive: Path, code_id: str) -> bool:
    """Whether the archive is there and is what its id says: a disk or an older agent may have damaged it."""
    try:
        with archive.open("rb") as file:
            return ids.code_id(hashlib.file_digest(file, "sha256").digest()) == code_id
    except FileNotFoundError:
        return False


def _fetch(gateway: CellGateway, code_id: str, archive: Path) -> None:
    """Write what the gateway sends beside the archive, and give it the archive's name once its content is checked."""
    handle, name = tempfile.mkstemp(dir=archive.parent, prefix=".fetching-")
    try:
        with os.fdopen(handle, "wb") as file:
            if _received(gateway, code_id, file) != code_id:
                raise CodeUnavailable(f"{gateway.url} sent something else than code {code_id}")
        os.replace(name, archive)
    finally:
        Path(name).unlink(missing_ok=True)


def _received(gateway: CellGateway, code_id: str, file: BinaryIO) -> str:
    """The id of what was sent and written to the file."""
    digest = hashlib.sha256()
    try:
        with gateway.open(f"/v1/code/{code_id}", TIMEOUT_S) as answer:
            while chunk := answer.read(CHUNK):
                digest.update(chunk)
                file.write(chunk)
    except (OSError, http.client.HTTPException, BusError) as error:  # URLError is an OSError
        raise CodeUnavailable(f"code {code_id} cannot be fetched from {gateway.url}: {error}") from error
    return ids.code_id(digest.digest())
