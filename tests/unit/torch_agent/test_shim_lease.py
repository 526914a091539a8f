"""While the lease of its node has run out a task stands still, whether or not there is an agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_agent.folders import SHIM
from torch_agent.membership import kill_marked
from torch_agent.records import Exit, read_record
from torch_agent.shim import SUSPENDED, boottime_s, read_lease, write_lease

LEASE_S = 1.0
FAMILY = """
import pathlib, subprocess, sys, time
child = "import time\\nwhile True: time.sleep(0.01)"
pids = [subprocess.Popen([sys.executable, "-c", child], process_group=group).pid for group in (None, 0)]
pathlib.Path("child").write_text(" ".join(map(str, pids)))
while True:
    with open("witness", "a") as file:
        print(time.clock_gettime(time.CLOCK_BOOTTIME), file=file)
    time.sleep(0.01)
"""


class Case:
    """A shim with one rank that writes when it runs, and has two children: in its process group and in another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "lease"

    def start(self, grace_s: float | None = 60.0, *, command: str = FAMILY, lease: bool = True, **more: Any) -> None:
        spec = {
            "version": 2,
            "command": [sys.executable, "-c", command],
            "cwd": str(self.folder),
            "environments": [{"RANK": "0", "SANJAYA_HARNESS_DIR": str(self.folder / "pages")}],
            "time_limit_s": None,
            "data_limit_bytes": 0,
            "nice": 0,
            **more,
        }
        if lease:
            spec["lease"] = {"path": str(self.path), "lease_s": LEASE_S, "grace_s": grace_s}
        (self.folder / "spec.json").write_text(json.dumps(spec))
        self.shim = subprocess.Popen([sys.executable, "-I", "-S", str(SHIM), str(self.folder)])
        until(lambda: len(self.witness()) > 2)

    def renew(self, lease_s: float = LEASE_S, grace_s: float | None = 60.0) -> None:
        write_lease(self.path, boottime_s(), lease_s, grace_s)

    def witness(self) -> list[float]:
        path = self.folder / "witness"
        return [float(line) for line in path.read_text().splitlines()] if path.exists() else []

    def processes(self) -> list[int]:
        shim = json.loads((self.folder / "shim.json").read_text())
        return [shim["ranks"]["0"], *map(int, (self.folder / "child").read_text().split())]

    def states(self) -> str:
        return "".join(state_of(pid) for pid in self.processes())

    def result(self) -> Exit | None:
        return read_record(self.folder / "exit.json", Exit)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    ends_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    yield made
    made.shim.kill()
    made.shim.wait()
    kill_marked(str(tmp_path / "pages"))


def test_the_file_is_renewed_in_place_and_a_damaged_one_counts_as_none(tmp_path: Path):
    path = tmp_path / "lease"
    assert read_lease(path) is None
    write_lease(path, 5.0, 16.0, 600.0)
    before = path.stat()
    write_lease(path, 1234567.25, 16.0, None)
    found = read_lease(path)
    assert found is not None
    assert found == {"renewed_s": 1234567.25, "lease_s": 16.0, "grace_s": None}
    assert json.loads(path.read_bytes().partition(b"\n")[0])["version"] == 1
    assert (path.stat().st_ino, path.stat().st_size) == (before.st_ino, before.st_size)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1234567.25", b"9234567.25"))
    assert read_lease(path) is None
    for body in (b"[]", b"{}", b'"lease"', b"x", b"[" * 400):
        path.write_bytes(body + f"\n{zlib.crc32(body):08x}\n".encode())
        assert read_lease(path) is None
    path.write_bytes(b"")
    assert read_lease(path) is None
    path.unlink()
    os.mkfifo(path)
    assert read_lease(path) is None


def test_a_lease_of_another_life_of_the_machine_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, other = tmp_path / "lease", tmp_path / "boot_id"
    other.write_text("11111111-2222-3333-4444-555555555555\n")
    with monkeypatch.context() as patched:
        patched.setattr("torch_agent.shim.BOOT_ID", other)
        write_lease(path, 5.0, 16.0, 600.0)
        assert read_lease(path) is not None
    assert read_lease(path) is None


def test_all_processes_stop_when_the_lease_runs_out_and_go_on_when_it_is_renewed(case: Case):
    case.renew()
    renewed_s = boottime_s()
    case.start()
    until(lambda: case.states() == "TTT")
    last_s = case.witness()[-1]
    assert last_s < renewed_s + LEASE_S + 1.0, "the shim is late"
    case.renew(lease_s=600.0)
    until(lambda: case.witness()[-1] > last_s and "T" not in case.states())
    assert case.shim.poll() is None and case.result() is None


def test_without_a_file_the_lease_counts_from_the_start_of_the_shim(case: Case):
    began_s = boottime_s()
    case.start()
    until(lambda: case.states() == "TTT")
    assert began_s + LEASE_S <= case.witness()[-1] + 0.5


def test_an_older_spec_names_no_lease_and_the_task_goes_on(case: Case):
    write_lease(case.path, 0.0, LEASE_S, 0.0)
    case.start(lease=False)
    seen = len(case.witness())
    time.sleep(1.5 * LEASE_S)
    assert len(case.witness()) > seen and "T" not in case.states()


def test_what_others_have_stopped_stands_still_on(case: Case):
    case.renew()
    case.start()
    os.kill(case.processes()[1], signal.SIGSTOP)
    until(lambda: case.states() == "TTT")
    case.renew(lease_s=600.0)
    until(lambda: case.states().replace("R", "S") == "STS")


def test_a_task_that_is_suspended_meanwhile_stands_still_on(case: Case):
    case.renew()
    case.start()
    until(lambda: case.states() == "TTT")
    (case.folder / SUSPENDED).touch()
    case.renew(lease_s=600.0)
    time.sleep(4.0)
    assert case.states() == "TTT"


def test_at_the_end_of_the_grace_the_task_is_killed_and_its_result_is_an_interruption(case: Case):
    case.renew(grace_s=1.0)
    case.start(grace_s=1.0)
    until(lambda: case.shim.poll() is not None)
    result = case.result()
    assert result is not None and (result.outcome, result.exit_code) == ("lease_expired", None)
    assert "lease" in result.stderr_tail
    until(lambda: all(state in "ZX" for state in case.states()))


def test_a_shim_that_was_frozen_too_gives_all_of_the_grace(case: Case):
    """Whatever froze it may have frozen the agent: that has had no time to renew the lease."""
    case.renew(grace_s=4.0)
    case.start()
    everything = [case.shim.pid, *case.processes()]
    for pid in everything:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(LEASE_S + 5.0)
    seen = len(case.witness())
    for pid in reversed(everything):
        os.kill(pid, signal.SIGCONT)
    until(lambda: case.states() == "TTT", within_s=1.0)
    assert case.shim.poll() is None
    case.renew(lease_s=600.0)
    until(lambda: len(case.witness()) > seen + 10)


def test_a_time_limit_does_not_let_it_go_on(case: Case):
    case.renew()
    case.start(time_limit_s=2.0)
    until(lambda: case.states() == "TTT")
    last_s = case.witness()[-1]
    until(lambda: case.shim.poll() is not None)
    result = case.result()
    assert result is not None and result.outcome == "time_limit"
    assert case.witness()[-1] == last_s


SAVES = """
import pathlib, signal, sys
def save(*_):
    pathlib.Path("saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
pathlib.Path("child").write_text("")
pathlib.Path("witness").write_text("1\\n2\\n3\\n")
while True:
    signal.pause()
"""


def test_told_to_end_it_lets_the_task_save(case: Case):
    case.renew()
    case.start(command=SAVES)
    until(lambda: case.states() == "T")
    case.shim.terminate()
    until(lambda: case.shim.poll() is not None)
    assert (case.folder / "saved").exists() and case.result() is None


def test_it_wakes_up_as_seldom_as_the_lease_can_run_out(case: Case):
    """At most 20 times a minute; an agent renews every 2 s, and the shim reads when the lease as last read ends."""
    case.renew(lease_s=2.0)
    case.start()
    time.sleep(0.5)
    before, began_s = switches(case.shim.pid), time.monotonic()
    while time.monotonic() - began_s < 8.0:
        case.renew(lease_s=2.0)
        time.sleep(0.2)
    assert switches(case.shim.pid) - before <= 6, "it woke up for more than reading the lease"
    assert "T" not in case.states()


def switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
