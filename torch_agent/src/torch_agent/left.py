"""The tasks that an agent has left running, as JSON; with `--end` they are told to save what they can, and to end.

python -m torch_agent.left STATE_DIR [--end]

For the time without an agent: what ended before its eyes would be lost, instead of interrupted. What tasks have left
whose shims were killed meanwhile is not listed, and is killed by `--end`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from libs.node.task import Status, Task
from torch_agent.folders import TaskFolder
from torch_agent.former import order_in
from torch_agent.holding import AnotherAgent, hold
from torch_agent.journal import Journal, JournalDamaged, JournalRefused
from torch_agent.processes import machine_start
from torch_agent.shim import PEER_GRACE_S

ENDS_WITHIN_S = 2 * PEER_GRACE_S + 5.0
"""A shim that is told to end gives its ranks twice its grace before it kills them."""
EXIT_REFUSED = 78


def unended_in(state_dir: Path) -> list[tuple[dict[str, Any], TaskFolder]]:
    """The tasks of the machine's present life whose end is not on record: what to say of each, and its folder.

    Raises:
        JournalRefused: the journal is of a newer format.
    """
    known = _known(state_dir / "journal.db")
    found = []
    for path in sorted((state_dir / "tasks").glob("*")) if known is not None else ():
        folder, task = TaskFolder(path), (known or {}).get(path.name)
        order = task.order if task is not None else order_in(path)
        if order is None or (task is not None and task.status is Status.EXITED):
            continue
        about = {"job_id": order.job_id, "attempt": order.attempt, "name": order.name, "node_id": order.node_id}
        gpus, status = (task.gpu_indices, task.status) if task is not None else (order.gpu_indices, Status.RUNNING)
        found.append((about | {"gpus": gpus, "pids": folder.ranks(), "status": status.value}, folder))
    return found


def _known(path: Path) -> dict[str, Task] | None:
    """The tasks in the journal; none where it is gone or damaged, which its next agent will see to.

    None: it is of an earlier life of the machine, and other processes have the tasks' numbers by now.
    """
    if not path.exists():
        return {}
    try:
        journal = Journal(path)
    except JournalDamaged:
        return {}
    try:
        return journal.tasks() if journal.machine_start in ("", machine_start()) else None
    finally:
        journal.close()


def end(folders: list[TaskFolder]) -> None:
    """Tell the shims that live to end, and wait until they have; what killed ones have left is killed."""
    waited: list[int] = []
    for folder in filter(TaskFolder.lives, folders):
        pid = folder.shim_pid()
        if pid is not None:
            with suppress(ProcessLookupError):
                waited.append(os.pidfd_open(pid))
                os.kill(pid, signal.SIGTERM)
    for descriptor in waited:
        select.select([descriptor], [], [], ENDS_WITHIN_S)
        os.close(descriptor)
    for folder in folders:
        folder.end_left()


def main() -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m torch_agent.left", description=__doc__)
    parser.add_argument("state_dir", type=Path)
    parser.add_argument("--end", action="store_true")
    options = parser.parse_args()
    try:
        with hold(options.state_dir):
            unended = unended_in(options.state_dir)
            found = [about for about, folder in unended if folder.lives()]
            if options.end:
                end([folder for _, folder in unended])
    except (AnotherAgent, JournalRefused) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_REFUSED
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
