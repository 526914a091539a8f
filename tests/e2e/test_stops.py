"""Eight jobs outlive every way in which `sanjaya up`, its services and its agent are stopped: none fails by it.

Two train and keep checkpoints, six are shell scripts that know nothing of anything. None may be retried.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path

import psutil
import pytest
from torch_agent.harness import inject_path
from torch_agent.journal import Journal

from libs.bus.local_broker.network import free_port
from libs.client import Client, ClientError
from libs.contracts.agent import JobExited, JobStarted, NodeJoined, NodeLeaving
from libs.contracts.failure_analysis import JobAbandoned, RetryScheduled
from libs.contracts.placement import JobPreempted
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import often
from tests.e2e.checking import checked
from tests.e2e.disturbed import SCRIPT
from tests.e2e.patience import PATIENT
from tests.e2e.test_rounds import wait_until
from tests.e2e.upgrading import ended_by_force, of_folder

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

SANJAYA = (sys.executable, "-m", "libs.cli.main")
TRAINING, SLEEPING = 2, 6
CHECKPOINT_EVERY = 10
"""Batches, in `SCRIPT`: what a job may lose by a machine that goes down without a word."""
WITHIN_S = 150.0
STOP_S = 60.0
"""A unit's processes have so long to end (`TimeoutStopSec`)."""
WAYS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
AWAY = "its processes were ended while the agent of node n1 was away"


class Up:
    """`sanjaya up` in a process of its own, started and stopped as its user would, and the jobs on it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.state_dir, self.port = folder, folder / "cell", free_port()
        given = ["--state-dir", str(self.state_dir), "--virtual-gpus", "8", "--port", str(self.port), *options]
        self.again = shlex.join(["sanjaya", "up", *given])
        self.jobs: list[str] = []
        self._end = folder / "end"
        (folder / "train.py").write_text(SCRIPT)

    def start(self, *options: str) -> None:
        """By the command that the last one has said would do it."""
        command = [*SANJAYA, *shlex.split(self.again)[1:], *options]
        environment = {**os.environ, **PATIENT, "HOME": str(self.folder / "home")}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        said = [""]
        while "Ctrl-C ends it" not in said[-1]:
            said.append(self.process.stderr.readline())
            assert said[-1], "".join(said)
        self.client = Client(f"http://127.0.0.1:{self.port}", (self.state_dir / "token").read_text().strip())

    def stop(self, number: int) -> dict[str, list[int]]:
        """Returns {job: pids} of what it says goes on without it."""
        self.process.send_signal(number)
        out, said = self.process.communicate(timeout=WITHIN_S)
        assert self.process.returncode == 0, said
        self.again = said.rsplit("to go on:  ", 1)[1].strip()
        rows = [line.split("\t") for line in out.splitlines()[1:]]
        return {row[0]: [int(pid) for pid in row[4].split(",")] for row in rows}

    def down(self) -> list[str]:
        """Returns the jobs of the tasks that it says it has ended."""
        command = [*SANJAYA, "down", "--state-dir", str(self.state_dir)]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=WITHIN_S).stdout
        return [line.split("\t")[0] for line in said.splitlines()[1:]]

    def submit_all(self) -> None:
        for number in range(TRAINING):
            command = [sys.executable, str(self.folder / "train.py"), str(self.losses(number)), str(self._end)]
            self.jobs.append(str(self.client.submit({"name": f"train-{number}", "command": command})["id"]))
        wait = f"while [ ! -e {self._end} ]; do sleep 0.2; done"
        for number in range(SLEEPING):
            job = self.client.submit({"name": f"sleep-{number}", "command": ["sh", "-c", wait]})
            self.jobs.append(str(job["id"]))

    def losses(self, number: int) -> Path:
        return self.folder / f"{number}.losses"

    def all_run(self, attempt: int) -> None:
        """Wait until every job runs, in this attempt, and those that train are further than their first checkpoint."""
        self.until(lambda: [job["attempt"] for job in self.listed("RUNNING")] == [attempt] * (TRAINING + SLEEPING))
        written = {number: self.size(number) for number in range(TRAINING)}
        self.until(lambda: all(self.size(n) > max(size, 1) + 3 * CHECKPOINT_EVERY for n, size in written.items()))

    def size(self, number: int) -> int:
        """Batches that a job has written, those that it has done twice included."""
        path = self.losses(number)
        return len(path.read_text().splitlines()) if path.exists() else 0

    def listed(self, state: str) -> list[dict[str, object]]:
        return [job for job in self.client.jobs() if job["state"] == state]

    def until(self, holds: object) -> None:
        """Wait; the gateway may be away."""

        def patiently() -> object:
            with suppress(ClientError):
                return holds()  # type: ignore[operator]
            return False

        wait_until(patiently, WITHIN_S)

    def pids(self) -> dict[str, list[int]]:
        """{job: pids} of the tasks that have been started."""
        return {event["data"]["job_id"]: [event["data"]["pid"]] for event in self.client.events(type="job.started.v1")}

    def processes(self) -> dict[str, psutil.Process]:
        """{its last module, and service: process} of what the supervisor keeps running."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):
                arguments = child.cmdline()
                if "-m" in arguments:
                    found[" ".join(arguments[arguments.index("-m") + 1 :][:2])] = child
        return found

    def each_process_ends(self) -> None:
        """The services each in one of the three ways (in all of them, if thorough), and then the agent in all."""
        for first in range(often(1, thorough=len(WAYS))):
            self._each_service_ends(islice(cycle(WAYS), first, None))
        for number in WAYS:
            [(name, agent)] = [found for found in self.processes().items() if found[0].startswith("torch_agent")]
            agent.send_signal(number)
            self.until(lambda name=name, agent=agent: self.is_back(name, agent.pid))
            begun_s = self.processes()[name].create_time()
            self.until(lambda begun_s=begun_s: self.joined_s() > begun_s)

    def _each_service_ends(self, ways: Iterator[int]) -> None:
        services = {name: each for name, each in self.processes().items() if not name.startswith("torch_agent")}
        for process in services.values():
            process.send_signal(next(ways))
        self.until(lambda: all(self.is_back(name, process.pid) for name, process in services.items()))
        self.until(self.client.status)

    def unit_stops(self, *, tasks: bool = False) -> None:
        """As by a service manager: SIGTERM to all processes of the cell's unit at once, then SIGKILL to what is left.

        Args:
            tasks: they are of the unit, too; our own units leave them alone (`KillMode=process`).
        """
        up = psutil.Process(self.process.pid)
        kept = up.children(recursive=tasks)
        if tasks:  # those of an earlier agent are no children any more
            kept += [each for each in of_folder(self.folder) if each not in kept]
        for process in (up, *kept):
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=STOP_S)
        _, left = psutil.wait_procs(kept, timeout=STOP_S)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.kill()
        self.process.communicate()
        psutil.wait_procs(left)

    def stands_still(self, job: str) -> None:
        """Pause a job, and wait until it is suspended."""
        self.client.pause(job)
        self.until(lambda: self.client.job(job)["state"] == "SUSPENDED")

    def is_back(self, name: str, pid: int) -> bool:
        process = self.processes().get(name)
        return process is not None and process.pid != pid

    def joined_s(self) -> float:
        """When the agent has joined for the last time; one that could not reach the log for long joins again, too."""
        times = [event["time"] for event in self.client.events(type="node.joined.v1")]
        return max((datetime.fromisoformat(time).timestamp() for time in times), default=0.0)

    def machine_restarts(self) -> None:
        """Nothing is left of any process, and the agent's journal is from another life of the machine."""
        children = psutil.Process(self.process.pid).children()
        self.process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.process.communicate()
        ended_by_force(self.folder)
        psutil.wait_procs(children)
        journal = Journal(self.state_dir / "nodes" / "n1" / "journal.db")
        journal.machine_start = "another life of this machine"
        journal.close()

    def all_succeed(self) -> Path:
        """Let them end. Returns the log."""
        self._end.touch()
        self.until(lambda: len(self.listed("SUCCEEDED")) == TRAINING + SLEEPING)
        path = self.folder / "log.jsonl"
        path.write_bytes(b"".join(self.client.export()))
        return path


@pytest.fixture
def up(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Up]:
    up = Up(tmp_path, *getattr(request, "param", ()))
    yield up
    up.client.close()
    if up.process.poll() is None:
        up.process.terminate()
        up.process.communicate()
    ended_by_force(tmp_path)


@pytest.mark.parametrize("up", [(), ("--bus", "kafka")], indirect=True, ids=["embedded", "kafka"])
def test_no_stop_of_a_cell_costs_a_job_more_than_is_stated(up: Up):
    up.start()
    up.submit_all()
    up.all_run(attempt=1)

    # What ends up, services and agent leaves the tasks alone, the one that is suspended as well.
    up.stands_still(up.jobs[0])
    left = up.stop(signal.SIGINT)
    assert sorted(left) == sorted(up.jobs)
    assert all(psutil.pid_exists(pid) for pids in left.values() for pid in pids)
    up.start()
    a_second_cell_on_its_port_is_refused(up)
    assert up.stop(signal.SIGTERM) == left
    up.start()
    up.each_process_ends()
    up.unit_stops()
    up.start()
    assert up.client.job(up.jobs[0])["state"] == "SUSPENDED"
    up.client.resume(up.jobs[0])
    up.all_run(attempt=1)
    assert up.pids() == left, "the same processes"
    assert twice(up) == [0] * TRAINING

    # What ends the tasks as well lets them save what they have done.
    up.unit_stops(tasks=True)
    assert nothing_left_of(up.folder) == []
    up.start()
    up.all_run(attempt=2)
    all_are_told(up, AWAY)
    up.stop(signal.SIGINT)
    assert sorted(up.down()) == sorted(up.jobs) and nothing_left_of(up.folder) == []
    up.start()
    up.all_run(attempt=3)
    assert twice(up) == [0] * TRAINING

    # What ends them without a word costs what they have done since their last checkpoint.
    up.machine_restarts()
    up.start("--on-exit", "requeue")
    up.all_run(attempt=4)
    lost = twice(up)
    assert all(count <= CHECKPOINT_EVERY for count in lost), lost
    all_are_told(up, "the machine of node n1 was restarted")

    assert up.stop(signal.SIGINT) == {} and nothing_left_of(up.folder) == []
    assert "--on-exit requeue" in up.again
    up.start()
    up.all_run(attempt=5)
    all_are_told(up, "the agent of node n1 is being stopped")
    assert twice(up) == lost, "what was saved on leaving is not done again"

    log = up.all_succeed()
    check_log(log, interrupted=3 * (TRAINING + SLEEPING), preempted=TRAINING + SLEEPING)
    check_losses(up)
    up.stop(signal.SIGTERM)
    assert nothing_left_of(up.folder) == []


def a_second_cell_on_its_port_is_refused(up: Up) -> None:
    other = up.folder / "other"
    done = subprocess.run(
        [*SANJAYA, "up", "--state-dir", str(other), "--port", str(up.port)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 1 and f"another cell, 'local' at {up.state_dir}" in done.stderr, done.stderr
    assert sorted(path.name for path in other.iterdir()) == [".gitignore", "up.lock"]


def all_are_told(up: Up, why: str) -> None:
    """The story of each job says it."""
    told = {job: str(up.client.story(job)) for job in up.jobs}
    assert {job: story for job, story in told.items() if why not in story} == {}, f"expected: {why}"


def batches(up: Up, number: int) -> list[tuple[int, str]]:
    """(Number, loss) of each batch that a job has done."""
    lines = [line.split() for line in up.losses(number).read_text().splitlines()]
    return [(int(batch), loss) for batch, loss in lines]


def twice(up: Up) -> list[int]:
    """How many batches each job has done more than once."""
    return [len(done := batches(up, number)) - len(dict(done)) for number in range(TRAINING)]


def check_losses(up: Up) -> None:
    """To the bit those of a run without a cell, those of batches that were done twice included."""
    found = [batches(up, number) for number in range(TRAINING)]
    last = max(batch for done in found for batch, _ in done)
    command = [sys.executable, str(up.folder / "train.py"), str(up.folder / "undisturbed"), str(up.folder / "never")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([inject_path(), os.environ.get("PYTHONPATH", "")])}
    subprocess.run(command, env={**environment, "LAST": str(last)}, check=True)
    lines = [line.split() for line in (up.folder / "undisturbed").read_text().splitlines()]
    undisturbed = {int(batch): loss for batch, loss in lines}
    for done in found:
        assert sorted(dict(done)) == list(range(max(dict(done)) + 1)), "no batch is left out"
        assert all(undisturbed[batch] == loss for batch, loss in done)


def check_log(path: Path, *, interrupted: int, preempted: int) -> None:
    """Nothing failed; what was ended is on the log with its cause; and the audit finds no difference."""
    events = [envelope.event for envelope in checked(path)]
    kinds = Counter(type(event) for event in events)
    assert kinds[JobAbandoned] == 0
    assert Counter(e.outcome for e in events if isinstance(e, JobExited)) == Counter(
        exited=TRAINING + SLEEPING, interrupted=interrupted, stopped=preempted
    ) - Counter(dict.fromkeys(("interrupted", "stopped"), 0))
    assert Counter(e.reason.code for e in events if isinstance(e, RetryScheduled))["Interrupted"] == interrupted
    assert kinds[RetryScheduled] == interrupted
    assert Counter(e.reason.code for e in events if isinstance(e, JobPreempted))["NodeLeaving"] == preempted
    assert kinds[JobPreempted] == preempted and kinds[NodeLeaving] == (1 if preempted else 0)
    assert kinds[JobStarted] == TRAINING + SLEEPING + interrupted + preempted and kinds[NodeJoined] >= 2
