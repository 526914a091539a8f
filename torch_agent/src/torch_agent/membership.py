"""Finds the processes of a task. Shims use it: it imports of the standard library alone, and what is fast to import.

Its processes are all that is found in one of these ways:

- in the tree below its shim, which adopts orphans (PR_SET_CHILD_SUBREAPER): while the shim lives, all that the task has
  started, in whatever session and process group, with whatever environment;
- in its control group (`cgroups.py`), where there is one: also when the shim has been killed;
- in the tree below the keeper of a session in it: what users have started beside its ranks;
- by the variable SANJAYA_HARNESS_DIR, a hint: of a shim that was killed, of one of before, which adopts nothing, and at
  the very end, for what others have started on behalf of the task.

The shim and the keepers themselves do not belong to it. Not found is what the task has had others start without that
variable (a daemon of containers, cron), and what a killed shim has left that cut itself loose, cleared its environment
and is in no control group.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torch_agent.cgroups import Cgroup
from torch_agent.processes import Table, arguments_of, children_now, kill, signals_heard, tell

TASK_VARIABLE = "SANJAYA_HARNESS_DIR"
"""In the environment of a task's processes, with the folder of its pages; those of no other task have it so."""
KEEPER = "sanjaya-keeper"
"""How keepers of sessions call themselves; the last argument of each is the folder of its task."""
SHARED_FILES = Path("/dev/shm")


class Membership(NamedTuple):
    """How the processes of one task are found."""

    folder: Path
    shim: int | None
    """Its process, while it lives."""
    groups: tuple[int, ...] = ()
    """Process groups of its ranks: with a shim that adopts no orphans, what is in them belongs to the task as well."""
    cgroup: Cgroup | None = None
    hint: bool = False
    """Whether the variable counts."""

    def pids(self, table: Table | None = None) -> list[int]:
        """The task's living processes, parents before their children as far as they are known.

        Args:
            table: a look at all processes; None: they are looked at now.
        """
        now, table = table is None, table or Table()
        roots = [pid for pid in table.named(KEEPER) if arguments_of(pid)[-1:] == [str(self.folder)]]
        if self.shim is not None:
            roots.append(self.shim)
        found = table.below(roots)
        found += table.in_groups(self.groups)
        if self.hint:
            found += marked(str(self.folder / "pages"), table)
        if now and self.shim is not None:
            # What starts another process and ends, faster than one pass goes, is not in the table, or below a parent
            # that is not. It is a child of the shim by now, or what it has started is soon.
            found += [pid for pid in children_now(self.shim) if pid not in table or table.lives(pid)]
        found = [pid for pid in found if pid not in roots]
        if self.cgroup is not None:  # whatever the task's records call the shim: that is in no group of a task
            found += [pid for pid in self.cgroup.pids() if pid not in table or table.lives(pid)]
        return list(dict.fromkeys(found))

    def tell(self, number: int) -> set[int]:
        """Send a signal to all. Returns those that this process may not signal."""
        if number == signal.SIGKILL and self.cgroup is not None:
            self.cgroup.kill()
        return tell(self.pids, number)

    def kill(self, wait_s: float) -> tuple[list[int], set[int]]:
        """Kill all that are found now, and wait for each, at most so many seconds.

        Returns:
            Those that were found, and those of them that this process may not kill.
        """
        if self.cgroup is not None:
            self.cgroup.kill()
        pids = self.pids()
        return pids, kill(pids, wait_s)

    def unsaving(self) -> list[int]:
        """Those that save nothing on SIGTERM: neither they hear it nor any that they descend from in this task."""
        table, saving = Table(), set[int]()
        pids = self.pids(table)
        for pid in pids:  # parents come first
            if table.parent(pid) in saving or signals_heard(pid) >> (signal.SIGTERM - 1) & 1:
                saving.add(pid)
        return [pid for pid in pids if pid not in saving]


def marked(mark: str, table: Table | None = None) -> list[int]:
    """The living processes that have `TASK_VARIABLE` with this value in their environment, ascending."""
    return (table or Table()).marked(TASK_VARIABLE, mark)


def kill_marked(mark: str, wait_s: float = 1.0) -> bool:
    """Kill them, and wait until they are gone, at most so many seconds for each. Returns whether there were any."""
    pids = marked(mark)
    kill(pids, wait_s)
    return bool(pids)


def remove_shared_files(pids: Iterable[int], since_s: float) -> None:
    """Remove the files of shared memory that processes have left which were killed.

    Only those whose names have the process that made them (`torch_<pid>_…`, of torch's strategy `file_system`). Others,
    such as those of `multiprocessing.shared_memory`, have random names, and another task of the same user may use them.

    Args:
        pids: of the processes, which have ended.
        since_s: when their task began; files that were changed last before that are of an earlier process.
    """
    for pid in pids:
        for path in SHARED_FILES.glob(f"torch_{pid}_*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime >= since_s:
                    path.unlink()
