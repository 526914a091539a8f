"""Where the attempts at a job keep their checkpoints, and which of them may: the newest alone.

    <folder>/owner           the job's id; other jobs are refused
    <folder>/attempt-2/...   what attempt 2 keeps; the folder is made before anything is read, and is its claim
    <folder>/...             what versions before attempts had folders have kept: older than any attempt

A node that was thought lost may come back with an attempt to which there is a newer one. Both can be on different
machines, with nothing but this folder in common, so nothing is locked. An attempt looks for a higher one before it
writes, before what it has written counts, and before it removes anything. If a claim comes between such a look and what
follows, nothing is harmed: each writes in a folder of its own, and what an older attempt completes is read by nobody,
because the highest attempt that has a complete checkpoint goes before all others.

An attempt removes its own older checkpoints and, once it has a complete one, those of lower attempts. These are over:
whatever still runs of them is refused here, and nothing reads what they keep any more. So there is, between two
checkpoints, one for each job. The look before the removal comes after the rename: a newer attempt that claims the
folder later than that finds the checkpoint of this one, and reads nothing that is being removed.

Without torch, and without an agent (a script that is run by hand), where an attempt goes on in the highest folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from contextlib import suppress

PART = ".part"
"""The end of the name of what is not complete."""
OWNER = "owner"
NOTE = "fenced.json"
"""In the folder of pages: why a process has ended that was refused; its agent looks for it."""
ATTEMPT = re.compile(r"attempt-([0-9]{1,9})")


class Fenced(SystemExit):
    """The attempt is not its job's newest one: the process ends, whatever the script catches."""


class AttemptFolder:
    """That of one attempt, in the folder of its job."""

    def __init__(self, folder: str, prefix: str) -> None:
        """Look whose the folder is.

        Args:
            folder: of the job; it need not be there.
            prefix: of the names of checkpoints, which end with the number of batches done.

        Raises:
            ValueError: another job's.
        """
        self._folder, self._prefix = folder, prefix
        self._refuse_if_owned()
        number = os.environ.get("SANJAYA_ATTEMPT", "")
        self._number = int(number) if number.isdecimal() else None
        """None: by hand, and not claimed yet."""

    @property
    def path(self) -> str:
        """Where this attempt keeps its own; there from `claim` on."""
        return os.path.join(self._folder, f"attempt-{self._number}")

    def claim(self) -> None:
        """Make this the newest attempt, before it reads anything.

        Raises:
            Fenced: it is not.
            ValueError: the folder is another job's.
        """
        os.makedirs(self._folder, exist_ok=True)
        self._own()
        if self._number is None:
            self._number = max(self._attempts(), default=0)
        self.check()
        os.makedirs(self.path, exist_ok=True)
        self.check()

    def check(self) -> None:
        """Go on only if there is no newer attempt.

        Raises:
            Fenced: there is.
        """
        newest = max(self._attempts(), default=0)
        if self._number is not None and newest > self._number:
            why = (
                f"fenced: attempt {newest} keeps checkpoints in {self._folder}; "
                f"attempt {self._number} is not the newest, and ends without having written there"
            )
            _note(why)
            raise Fenced(f"sanjaya: {why}")

    def newest(self) -> str | None:
        """The path of the newest complete checkpoint of all attempts up to this one; None when there is none."""
        own = self._number or 0
        attempts = sorted((number for number in self._attempts() if number <= own), reverse=True)
        for folder in [*(os.path.join(self._folder, f"attempt-{number}") for number in attempts), self._folder]:
            complete = [name for name in self._kept(folder) if not name.endswith(PART)]
            if complete:
                return os.path.join(folder, max(complete, key=self.batches_done))
        return None

    def complete(self, part: str) -> str:
        """Give what was written its name; returns its path.

        Args:
            part: its path, in this attempt's folder, with `PART` at the end.

        Raises:
            Fenced: there is a newer attempt.
        """
        self.check()
        path = part.removesuffix(PART)
        os.replace(part, path)
        return path

    def remove_before(self, path: str, *, others: bool = False) -> None:
        """Remove what came before a complete checkpoint of this attempt, also what never was complete.

        Args:
            path: of that checkpoint.
            others: also complete ones of this attempt with more batches done.

        Raises:
            Fenced: there is a newer attempt.
        """
        self.check()
        name = os.path.basename(path)
        for kept in self._kept(self.path):
            over = self.batches_done(kept) < self.batches_done(name)  # other ranks may have begun later ones since
            if over or (others and kept != name and not kept.endswith(PART)):
                _remove(os.path.join(self.path, kept))
        for number in self._attempts():
            if number < (self._number or 0):
                self._clear(os.path.join(self._folder, f"attempt-{number}"))
        self._clear(self._folder)

    def batches_done(self, path: str) -> int:
        """Of a checkpoint, complete or not."""
        return int(os.path.basename(path).removeprefix(self._prefix).removesuffix(PART))

    def _clear(self, folder: str) -> None:
        for name in self._kept(folder):
            _remove(os.path.join(folder, name))
        if folder != self._folder:
            with suppress(OSError):  # what the script itself keeps there is left alone
                os.rmdir(folder)

    def _attempts(self) -> list[int]:
        return sorted(int(found[1]) for name in _names(self._folder) if (found := ATTEMPT.fullmatch(name)))

    def _kept(self, folder: str) -> list[str]:
        """Names of checkpoints, also of those that are not complete."""
        kept = re.compile(rf"{re.escape(self._prefix)}[0-9]{{1,18}}({re.escape(PART)})?")
        return [name for name in _names(folder) if kept.fullmatch(name)]

    def _own(self) -> None:
        """Note whose the folder is, all of it at once: of two jobs one comes first."""
        job_id = os.environ.get("SANJAYA_JOB_ID")
        if not job_id:
            return
        descriptor, part = tempfile.mkstemp(dir=self._folder, prefix=f"{OWNER}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(job_id)
            with suppress(FileExistsError):
                os.link(part, os.path.join(self._folder, OWNER))
        finally:
            os.unlink(part)
        self._refuse_if_owned()

    def _refuse_if_owned(self) -> None:
        job_id = os.environ.get("SANJAYA_JOB_ID")
        try:
            with open(os.path.join(self._folder, OWNER)) as file:
                owner = file.read(1024).strip()
        except FileNotFoundError:
            return
        if job_id and owner != job_id:
            raise ValueError(
                f"sanjaya: the checkpoints in {self._folder} are those of job {owner}, and this is job {job_id}: "
                f"expected a folder of its own; to begin with a state from there, copy the checkpoint "
                f"({self._prefix}<number>) into it"
            )


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove(path: str) -> None:
    """As far as that goes: what still writes there leaves a rest for the next time."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            os.remove(path)


def _note(why: str) -> None:
    folder = os.environ.get("SANJAYA_HARNESS_DIR")
    if not folder:
        return
    with suppress(OSError):  # then the end is told as the script's own
        part = os.path.join(folder, f"{NOTE}.{os.getpid()}")
        with open(part, "w") as file:
            json.dump({"version": 2, "why": why}, file)
        os.replace(part, os.path.join(folder, NOTE))
