"""Fetching files of a job: in parts, each with its checksum, going on where a break has left off."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from libs.client.client import Client, Part
from libs.client.connection import Json
from libs.client.errors import ApiError, ClientError, Unreachable
from libs.client.streams import LONGEST_WAIT_S, NOT_NOW, PATIENCE_S, SHORTEST_WAIT_S

PART_BYTES = 16 << 20
TIMES = 3
"""How often a part with a wrong checksum is fetched."""
FILE, FOLDER = "file", "folder"


class Damaged(ClientError):
    """What has come is not what the node has; the message says of which file."""


@dataclass(frozen=True)
class Found:
    """A file of a job."""

    path: str
    """Below the job's working directory."""
    below: str
    """Below what was asked for; empty: that itself."""
    row: Json
    """As the gateway lists it."""


def walked(client: Client, job: str, path: str, *, rank: int = 0) -> Iterator[Found]:
    """Everything below a path of a job, folder by folder, folders before what is in them.

    Raises:
        Damaged: a name is none that a file may have.
    """
    waiting = [(path.strip("/"), "")]
    while waiting:
        here, below = waiting.pop()
        for row in client.job_files(job, here, rank=rank)["items"]:
            name = row["name"]
            if not name:
                yield Found(here, "", row)
                return
            if name in (".", "..") or "/" in name or "\0" in name:
                raise Damaged(f"{job}:{here} has {name!r}, which is no name of a file")
            found = Found(_joined(here, name), _joined(below, name), row)
            yield found
            if row["kind"] == FOLDER:
                waiting.append((found.path, found.below))


def fetch_file(
    client: Client,
    job: str,
    path: str,
    target: Path,
    *,
    rank: int = 0,
    on_bytes: Callable[[int], None] = lambda number: None,
    patience_s: float = PATIENCE_S,
) -> None:
    """Fetch one file. It appears whole, checked and under its name, or not at all.

    A fetch that was broken off has left a hidden file beside it, and goes on from there as long as the node has the
    same content.

    Args:
        on_bytes: told how many bytes more are there.
        patience_s: how long a gateway or a node may be away in the middle of the file.

    Raises:
        ApiError: the file is not there, or has changed meanwhile.
        Damaged: a part keeps coming with a wrong checksum.
        Unreachable: the gateway or the node stays away.
    """
    part = _checked(client, job, path, rank, 0, None)
    unfinished = target.with_name(f".{target.name}.{hashlib.sha256(part.etag.encode()).hexdigest()[:16]}.part")
    with unfinished.open("ab") as file:
        at = min(file.tell() // PART_BYTES * PART_BYTES, part.total)
        file.truncate(at)  # a part that was being written
        on_bytes(at)
        while at < part.total:
            if part.first != at:
                part = _patiently(client, job, path, rank, at, part.etag, patience_s)
            file.write(part.content)
            at += len(part.content)
            on_bytes(len(part.content))
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, target)


def _patiently(client: Client, job: str, path: str, rank: int, at: int, etag: str, patience_s: float) -> Part:
    """A part, also when the gateway or the node is away for a while."""
    until_s, wait_s = time.monotonic() + patience_s, SHORTEST_WAIT_S
    while True:
        try:
            return _checked(client, job, path, rank, at, etag)
        except (Unreachable, ApiError) as error:
            if (isinstance(error, ApiError) and error.status != NOT_NOW) or time.monotonic() > until_s:
                raise
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def _checked(client: Client, job: str, path: str, rank: int, at: int, etag: str | None) -> Part:
    for _ in range(TIMES):
        part = client.job_file_part(job, path, at, PART_BYTES, rank=rank, etag=etag)
        digest = base64.b64encode(hashlib.sha256(part.content).digest()).decode()
        if part.digest == f"sha-256=:{digest}:" and (part.content or at >= part.total):
            return part
    raise Damaged(f"{job}:{path}: the part at byte {at} came {TIMES} times with another checksum than its node said")


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
