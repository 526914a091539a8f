"""Finding a file of a job by its path: whatever the path is and wherever links lead, nothing else can be had.

A job's files are those of its working directory, and in it what it keeps beyond its end. When the working directory has
been removed, what is kept is all there is, under the same paths.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from libs.node.serving import output_folder, work_folder


class NoSuchFile(Exception):
    """There is no such file to be had; the message says why."""


@dataclass(frozen=True)
class JobFiles:
    """Of one attempt of a job on this node."""

    work: Path
    kept: Path

    @classmethod
    def of(cls, state_dir: Path, job_id: str, attempt: int) -> JobFiles:
        """By the ids of a request.

        Raises:
            NoSuchFile: the id is a path.
        """
        if not job_id or job_id.startswith(".") or "/" in job_id or "\0" in job_id:
            raise NoSuchFile(f"{job_id!r} is no job")
        root = os.path.realpath(state_dir)
        return cls(Path(work_folder(root, job_id, attempt)), Path(output_folder(root, job_id)))

    @property
    def root(self) -> Path:
        """What paths begin at.

        Raises:
            NoSuchFile: the node has nothing of the job.
        """
        for folder in (self.work, self.kept):
            if folder.is_dir():
                return folder
        raise NoSuchFile(
            "the node has no folder of it: it is not made yet, the job runs in a directory of the node's own, or too "
            "much time has passed since its end (an hour; --output DIR is kept longer)"
        )

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """A descriptor of the file or folder at a path within the job's files.

        Raises:
            NoSuchFile: there is none, it cannot be read, or it is outside.
        """
        name = PurePosixPath(path)
        if name.is_absolute() or ".." in name.parts or "\0" in path:
            raise NoSuchFile(f"{path!r} leads out of the job's folder")
        real = os.path.realpath(self.root / name)
        if not self.has(real):
            raise NoSuchFile(f"{path!r} leads out of the job's folder")
        try:
            # Neither waits for the writer of a pipe nor follows a link that has come meanwhile.
            descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            raise NoSuchFile(f"{path!r}: {(error.strerror or str(error)).lower()}") from None
        try:
            # The job may exchange folders for links while we look: what counts is what has been opened.
            if not self.has(os.readlink(f"/proc/self/fd/{descriptor}")):
                raise NoSuchFile(f"{path!r} leads out of the job's folder")
            yield descriptor
        finally:
            os.close(descriptor)

    def has(self, real: str) -> bool:
        """Whether a path without links is among the job's files."""
        return any(Path(real).is_relative_to(folder) for folder in (self.work, self.kept))

    def listing(self, descriptor: int) -> list[dict[str, Any]]:
        """What is in an opened folder, by name; of an opened file, that file with an empty name."""
        seen = os.fstat(descriptor)
        if not stat.S_ISDIR(seen.st_mode):
            return [_row("", "file" if stat.S_ISREG(seen.st_mode) else "other", seen)]
        here = os.readlink(f"/proc/self/fd/{descriptor}")
        with os.scandir(descriptor) as items:
            return [self._row(item.name, here) for item in sorted(items, key=lambda item: item.name)]

    def _row(self, name: str, here: str) -> dict[str, Any]:
        path = os.path.join(here, name)
        own = os.lstat(path)
        real = os.path.realpath(path)
        if not self.has(real) or not os.path.exists(real):
            return _row(name, "link", own)
        seen = os.stat(real)
        if stat.S_ISREG(seen.st_mode):
            return _row(name, "file", seen)
        # Of links to folders those to what is kept are followed, no others: so no walk goes in circles.
        in_kept = Path(real).is_relative_to(self.kept) and not Path(here).is_relative_to(self.kept)
        if stat.S_ISDIR(own.st_mode) or (stat.S_ISDIR(seen.st_mode) and in_kept):
            return _row(name, "folder", seen)
        return _row(name, "link" if stat.S_ISLNK(own.st_mode) else "other", own)


def _row(name: str, kind: str, seen: os.stat_result) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "bytes": seen.st_size if kind == "file" else 0,
        "changed_s": seen.st_mtime,
        "executable": kind == "file" and bool(seen.st_mode & stat.S_IXUSR),
    }
