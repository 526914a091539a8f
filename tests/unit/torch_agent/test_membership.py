"""Which processes are a task's: real ones, in real trees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch_agent.membership import KEEPER, TASK_VARIABLE, Membership, remove_shared_files
from torch_agent.processes import Looks, Table, began, kill, lives, tell

SRC = str(Path(sys.modules["torch_agent"].__path__[0]).parent)
ROOT = f"""
import os, subprocess, sys, time
sys.path.insert(0, {SRC!r})
from torch_agent.processes import adopt_orphans
adopt_orphans()
"""
SAYS = "print(*{pids}, flush=True); sys.stdin.read()"
DAEMON = """
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os.execve("/bin/sleep", ["sleep", "977"], {})
    os._exit(0)
os.wait()
daemon = int(os.read(read, 20))
"""
ESCAPED = 'escaped = subprocess.Popen(["setsid", "env", "-i", "sleep", "977"]).pid\n'


@pytest.fixture
def started() -> Iterator[Callable[..., tuple[int, list[int]]]]:
    """Runs a script that adopts orphans. Returns its pid, and the numbers that it prints."""
    roots: list[subprocess.Popen[bytes]] = []

    def start(script: str, **environment: str) -> tuple[int, list[int]]:
        root = subprocess.Popen(
            [sys.executable, "-c", ROOT + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        roots.append(root)
        assert root.stdout is not None
        return root.pid, [int(word) for word in root.stdout.readline().split()]

    yield start
    for root in roots:
        while pids := Table().below([root.pid]):
            kill(pids, 10.0)
        root.kill()
        root.communicate()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_what_cuts_itself_loose_stays_in_the_tree_of_what_adopts_orphans(started, tmp_path: Path):
    root, (escaped, daemon) = started(ESCAPED + DAEMON + SAYS.format(pids="[escaped, daemon]"))
    until(lambda: Path(f"/proc/{escaped}/comm").read_text() == "sleep\n")
    assert os.getsid(escaped) == escaped and Path(f"/proc/{escaped}/environ").read_bytes() == b""
    assert Table().parent(daemon) == root
    task = Membership(tmp_path, root)
    assert set(task.pids()) == {escaped, daemon}
    assert task.tell(signal.SIGSTOP) == set()
    until(lambda: state(escaped) == state(daemon) == "T")
    task.tell(signal.SIGCONT)
    until(lambda: state(escaped) == state(daemon) == "S")
    found, refused = task.kill(10.0)
    assert set(found) == {escaped, daemon} and refused == set() and task.pids() == []


def test_parents_come_before_their_children_and_zombies_do_not_come(started, tmp_path: Path):
    script = (
        "dead = subprocess.Popen(['true']); os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)\n"
        "child = subprocess.Popen(['sh', '-c', 'sleep 977 & echo $!; wait'], stdout=subprocess.PIPE)\n"
        "grandchild = int(child.stdout.readline())\n"
    )
    root, (dead, child, grandchild) = started(script + SAYS.format(pids="[dead.pid, child.pid, grandchild]"))
    assert Membership(tmp_path, root).pids() == [child, grandchild] and not Table().lives(dead)
    assert Table().children(root) == [dead, child]


def test_a_process_whose_first_thread_has_ended_lives(started, tmp_path: Path):
    script = (
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    import ctypes, threading\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    ctypes.CDLL(None).syscall(60, 0)\n"  # exit, of this thread alone
    )
    root, [pid] = started(script + SAYS.format(pids="[pid]"))
    until(lambda: state(pid) == "Z")
    assert lives(pid) and Membership(tmp_path, root).pids() == [pid]


def test_sessions_are_found_by_their_keepers_and_no_keeper_is_of_another_task(started, tmp_path: Path):
    keeper = f"from pathlib import Path; Path('/proc/self/comm').write_text({KEEPER!r})\n{ESCAPED}"
    keeper += SAYS.format(pids="[escaped]")
    root, _ = started(SAYS.format(pids="[]"))
    process = subprocess.Popen(
        [sys.executable, "-c", ROOT + keeper, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    escaped = int(process.stdout.readline())
    assert Membership(tmp_path, root).pids() == [escaped]
    assert Membership(tmp_path.parent, root).pids() == []
    os.kill(escaped, signal.SIGKILL)
    process.communicate()


def test_the_variable_counts_where_it_is_asked_for(started, tmp_path: Path):
    _, [pid] = started(SAYS.format(pids="[os.getpid()]"), **{TASK_VARIABLE: str(tmp_path / "pages")})
    assert Membership(tmp_path, None).pids() == []
    assert Membership(tmp_path, None, hint=True).pids() == [pid]
    assert Membership(tmp_path.parent, None, hint=True).pids() == []


def test_what_does_not_hear_sigterm_saves_nothing_unless_what_started_it_does(started, tmp_path: Path):
    script = (
        "import signal\n"
        "saver = 'import signal, subprocess, sys; signal.signal(signal.SIGTERM, lambda *_: None);'\n"
        'saver += \'print(subprocess.Popen(["sleep", "977"]).pid, flush=True); sys.stdin.read()\'\n'
        "saving = subprocess.Popen([sys.executable, '-c', saver], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "helper = int(saving.stdout.readline())\n"
    )
    root, pids = started(ESCAPED + script + SAYS.format(pids="[escaped, saving.pid, helper]"))
    escaped, saving, helper = pids
    task = Membership(tmp_path, root)
    assert task.unsaving() == [escaped] and set(task.pids()) == {escaped, saving, helper}


def test_signals_reach_what_is_started_while_they_are_sent(started, tmp_path: Path):
    """A chain of processes that grows by one each millisecond."""
    script = "first = os.fork()\nwhile first == 0:\n    time.sleep(0.001)\n    if os.fork(): time.sleep(600)\n"
    root, _ = started(script + SAYS.format(pids="[]"))
    task = Membership(tmp_path, root)
    until(lambda: len(task.pids()) > 10)
    task.tell(signal.SIGSTOP)
    standing = task.pids()
    until(lambda: {state(pid) for pid in standing} == {"T"})
    assert task.pids() == standing


@pytest.mark.skipif(os.geteuid() != 0, reason="processes of two users")
def test_what_may_not_be_signalled_is_named_and_not_waited_for():
    with subprocess.Popen(["sleep", "977"]) as foreign:
        if (other := os.fork()) == 0:
            try:
                os.setuid(65534)
                refused = (tell(lambda: [foreign.pid], signal.SIGSTOP), kill([foreign.pid], 600.0))
                os._exit(0 if refused == ({foreign.pid}, {foreign.pid}) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0 and lives(foreign.pid)
        foreign.kill()


def test_a_number_that_another_process_has_by_now_is_not_the_first_one():
    assert lives(os.getpid(), began(os.getpid())) and not lives(os.getpid(), began(os.getpid()) - 1)


def test_one_look_serves_all_that_ask_within_a_moment():
    looks = Looks()
    first = looks.recent()
    looks.FRESH_S = 3600.0
    assert looks.recent() is first
    looks.forget()
    assert looks.recent() is not first


def test_only_shared_files_that_name_their_maker_are_removed_and_none_of_before(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("torch_agent.membership.SHARED_FILES", tmp_path)
    for name in ("torch_77_1_0", "torch_77_old", "torch_777_1_0", "psm_1234", "sem.mp-x"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "torch_77_old", (100.0, 100.0))
    remove_shared_files([77], since_s=1000.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["psm_1234", "sem.mp-x", "torch_777_1_0", "torch_77_old"]


def test_telling_ends_also_where_there_is_no_end_of_processes():
    """Numbers of processes that are not there, each look another one."""
    told = iter(range(10_000_000, 20_000_000))
    assert tell(lambda: [next(told)], signal.SIGSTOP) == set()
