"""What a task may do to the pages of its GPUs, and to what paces it: its agent goes on, and so do other tasks."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_agent.folders import TaskFolder
from torch_agent.harness.allowance import Allowance
from torch_agent.harness.control import LAYOUTS, MAGIC, MARK, MARK_AT, NAME, current_allowance
from torch_agent.harness.gpu_page import FAR_S, OPENED, SIZE, GpuPage
from torch_agent.harness.page import PageWriter
from torch_agent.pacing import LOCK, Pacer, end_pacer, pacer_of
from torch_agent.sharing import Sharing

from libs.node.task import GUEST, Status, Task
from tests.unit.node.test_task import LAUNCH
from torch_agent import sharing


class Node:
    """A guest without gates, as far as its page says, beside an owner; it has the page of its GPU in its folder."""

    def __init__(self, path: Path) -> None:
        self.page_path = path / "gpus" / "0.page"
        self.sharing = Sharing(path / "gpus", [0], virtual=True)
        self.task = Task(order=LAUNCH, gpu_indices=[0], status=Status.RUNNING, role=GUEST)
        self.folder = TaskFolder(path / "tasks" / self.task.key)
        self.folder.make()
        self.sharing.keep(self.task, self.folder)
        self.gpu_page = self.folder.pages / "gpu-0"
        PageWriter(str(self.folder.pages), 0, 1).write(1, 0.0, 0.1, 0.5, 0, 0)

    def look(self) -> None:
        self.sharing.look([(self.task, self.folder)])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of another task."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_page_of_a_gpu_that_a_task_has_shortened_is_mended_where_it_is_mapped(node: Node):
    mapped = GpuPage(node.gpu_page)
    mapped.own(os.getpid())
    os.truncate(node.gpu_page, 0)
    node.sharing.open(0, 1)
    assert node.sharing.owner_waits(0) is False
    node.task.share_bound = 0.5
    node.sharing.keep(node.task, node.folder)
    node.look()
    assert node.page_path.stat().st_size == SIZE
    mapped.own(os.getpid())
    node.sharing.open(0, 1)
    assert (mapped.owner_pid, mapped.open) == (os.getpid(), 1)
    assert GpuPage(node.gpu_page).owner_pid == os.getpid(), "a process that is started later finds a page"


def test_a_counter_at_its_end_begins_anew(node: Node):
    page = GpuPage(node.gpu_page)
    page._numbers[OPENED] = 2**64 - 1
    node.sharing.open(0, 1)
    assert page.guests == (1, 0)


def test_a_folder_that_was_replaced_by_a_link_leads_into_no_other_task(node: Node, tmp_path: Path):
    other = TaskFolder(tmp_path / "tasks" / "other.1")
    other.make()
    before = current_allowance(other.pages)
    node.folder.pages.rename(tmp_path / "away")
    node.folder.pages.symlink_to(other.pages)
    node.task.gpu_indices, node.task.role = [], GUEST
    node.sharing.keep(node.task, node.folder)
    assert current_allowance(other.pages) == before


@pytest.mark.parametrize("written", [b"nonsense", b"-1", b"\xff", b"9" * 5000, b""])
def test_whatever_a_task_writes_into_the_lock_of_its_pacer_is_no_pacer(node: Node, written: bytes):
    path = node.folder.path / LOCK
    path.write_bytes(written)
    with path.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert pacer_of(node.folder) is None


def test_a_task_has_no_other_process_ended_in_the_place_of_its_pacer(
    node: Node, stranger: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
):
    path = node.folder.path / LOCK
    path.write_text(str(stranger.pid))
    told: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append(pid))
    with path.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node.look()
    assert told == []


def pacing(node: Node) -> None:
    """An owner has come: the guest, which has no gates, is to be paced from outside."""
    GpuPage(node.page_path).own(os.getpid())
    node.look()


def test_a_pipe_in_the_place_of_the_pacers_log_stops_no_agent(node: Node):
    os.mkfifo(node.folder.path / "pacer.log")
    pacing(node)
    assert node.sharing._pacers == {}


def test_a_folder_that_is_gone_stops_no_agent(node: Node, tmp_path: Path):
    PageWriter(str(node.folder.pages), 0, 1)
    node.folder.path.rename(tmp_path / "away")
    pacing(node)
    assert node.sharing._pacers == {}


def test_of_pacers_that_end_at_once_few_are_started(node: Node, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "PACER_AGAIN_S", 3600.0)
    os.mkfifo(node.folder.path / LOCK)
    pacing(node)
    first, _ = node.sharing._pacers[node.task.key]
    first.wait()
    node.look()
    node.look()
    assert node.sharing._pacers[node.task.key][0] is first


def test_a_pacer_is_ended_when_it_is_needed_no_more(node: Node, stranger: subprocess.Popen[bytes]):
    shim = {"version": 2, "pid": stranger.pid, "ranks": {"0": stranger.pid}}
    (node.folder.path / "shim.json").write_text(json.dumps(shim))
    with (node.folder.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pacing(node)
        pacer, _ = node.sharing._pacers[node.task.key]
        try:
            while pacer_of(node.folder) is None and pacer.poll() is None:
                time.sleep(0.01)
            assert pacer_of(node.folder) == pacer.pid
            node.task.status = Status.SUSPENDED
            node.look()
            assert pacer.wait() in (0, -signal.SIGTERM)
        finally:
            pacer.kill()
            pacer.wait()


def state_of(process: subprocess.Popen[bytes]) -> str:
    """As /proc says it: `T` is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_task_that_is_to_stand_still_is_not_let_go_on_by_its_pacer(node: Node):
    guest = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    shim = subprocess.Popen(["sleep", "977"])
    record = {"version": 2, "pid": shim.pid, "ranks": {"0": guest.pid}}
    (node.folder.path / "shim.json").write_text(json.dumps(record))
    with (node.folder.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        GpuPage(node.page_path).busy(time.monotonic() + FAR_S)
        pacing(node)
        pacer, _ = node.sharing._pacers[node.task.key]
        try:
            while state_of(guest) != "T":
                time.sleep(0.01)
            end_pacer(node.folder)
            assert pacer.wait() == -signal.SIGKILL
            assert pacer_of(node.folder) is None and state_of(guest) == "T"
        finally:
            for process in (pacer, guest, shim):
                process.kill()
                process.wait()


def holds_beside_its_owner(node: Node) -> bool:
    """Whether a pacer stops the guest while the owner computes, and lets it go on when that has gone."""
    page = GpuPage(node.page_path)
    page.own(os.getpid())
    page.busy(time.monotonic() + FAR_S)
    pacer = Pacer(node.folder, virtual=True)
    pacer._step(time.monotonic())
    beside = pacer._holds
    page.clear()
    pacer._step(time.monotonic())
    return beside and not pacer._holds


def test_a_guest_with_an_older_control_file_has_gaps_alone(node: Node):
    content = bytearray(LAYOUTS[3].size)
    MARK.pack_into(content, MARK_AT, MAGIC, 3)
    (node.folder.pages / NAME).write_bytes(content)
    assert holds_beside_its_owner(node)


def test_a_control_file_that_is_cut_off_is_replaced_where_the_guest_is_to_be_paced(node: Node):
    path = node.folder.pages / NAME
    os.truncate(path, 30)
    pacing(node)
    pacer, _ = node.sharing._pacers[node.task.key]
    pacer.wait()  # the task has no processes
    assert current_allowance(node.folder.pages)[1] == Allowance(role=GUEST, share_ratio=0.0)
    assert holds_beside_its_owner(node)
