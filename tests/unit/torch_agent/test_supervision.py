"""What an agent has begun with a task, the next agent ends: a restart between two looks changes nothing."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from torch_agent.clock import go_on, now_s, offset_s
from torch_agent.folders import TaskFolder
from torch_agent.harness.control import current_turn
from torch_agent.harness.page import Acknowledged, PageWriter
from torch_agent.journal import Journal
from torch_agent.launching import Launcher
from torch_agent.options import parse
from torch_agent.probes.scaling import Scaling
from torch_agent.processes import machine_start
from torch_agent.sharing import Sharing
from torch_agent.shim import SUSPENDED
from torch_agent.supervision import Supervision

from libs.contracts.agent import JobExited, JobStarted, JobSuspended, NodeLeaving
from libs.contracts.base import Event
from libs.contracts.placement import ResumeTask, SuspendTask
from libs.node.admission import Admission
from libs.node.task import Order, Status, Task, Want
from tests.unit.node.test_task import LAUNCH, STOP
from torch_agent import acting, interruptions

SUSPEND = SuspendTask(node_id="n1", job_id="a", attempt=1)
RESUME = ResumeTask(node_id="n1", job_id="a", attempt=1)


NO_PROCESS = 2**22
"""Above the numbers that the kernel gives: the shim, which is no parent of the rank here."""


class Node:
    """A task with a shim that has started one rank, which listens; and an agent that can be replaced."""

    def __init__(self, folder: Path) -> None:
        self._state_dir, self._orders, self.leased = folder, 0, True
        self.start_agent()  # before there is a task that its journal does not know
        self.folder = TaskFolder(folder / "tasks" / "a.1")
        self.folder.make()
        self._lock = (self.folder.path / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
        shim = {"version": 2, "pid": NO_PROCESS, "ranks": {"0": self.rank.pid}}
        (self.folder.path / "shim.json").write_text(json.dumps(shim))
        self.page = PageWriter(str(self.folder.pages), 0, 1)
        self.page.write(0, 0.0, 0.0, float("nan"), 0, 0)

    def start_agent(self, machine_start: str = "") -> None:
        """Another one, that knows what the journal knows.

        Args:
            machine_start: the life of the machine in which the one before has looked last; empty: what it has noted.
        """
        self._journal = Journal(self._state_dir / "journal.db")
        if machine_start:
            self._journal.machine_start = machine_start
        launcher = Launcher(
            parse(["--bus", "sqlite:///none", "--state-dir", str(self._state_dir)]),
            [],
            lambda order: [],
            lambda order, pages: None,
            Scaling(),
        )
        sharing = Sharing(self._state_dir / "gpus", [0], virtual=True)
        self.agent = Supervision(
            self._state_dir, self._journal, launcher, lambda: None, sharing, Admission(), leased=lambda: self.leased
        )

    def kill_agent(self) -> None:
        self._journal.close()

    def end_shim(self) -> None:
        """It leaves no result."""
        self._lock.close()

    @property
    def machine_start(self) -> str:
        return self._journal.machine_start

    def order(self, *orders: Order) -> None:
        self._orders += len(orders)
        self.agent.take(list(orders), self._orders)
        self.agent.look()

    @property
    def task(self) -> Task:
        return self.agent.tasks["a.1"]

    @property
    def facts(self) -> list[Event]:
        return [fact.event for fact in self._journal.unpublished(100)]

    @property
    def stands_still(self) -> bool:
        """Whether the processes are told to."""
        return current_turn(self.folder.pages) % 2 == 1

    def reach_boundary(self) -> None:
        turn = current_turn(self.folder.pages)
        self.page.acknowledged(
            Acknowledged(turn=turn, bytes_parked=5, bytes_left=0, park_s=0.1, unpark_s=0.0, parked_at_s=time.time())
        )

    def close(self) -> None:
        self._journal.close()
        self.rank.kill()
        self.rank.wait()
        self._lock.close()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    node.order(LAUNCH)
    assert [type(fact) for fact in node.facts] == [JobStarted] and node.task.status is Status.RUNNING
    yield node
    node.close()


async def test_a_suspension_that_a_killed_agent_has_begun_is_called_off_by_the_next_one(node: Node):
    node.order(SUSPEND)
    assert node.stands_still
    node.kill_agent()
    node.reach_boundary()
    node.start_agent()
    node.order(RESUME)
    assert not node.stands_still
    assert node.task.status is Status.RUNNING and [type(fact) for fact in node.facts] == [JobStarted]


async def test_a_stop_that_comes_while_the_lease_has_run_out_kills_before_another_step(node: Node):
    node.leased = False
    node.order(STOP)
    assert node.rank.wait(10) == -signal.SIGKILL


async def test_a_suspended_task_goes_on_when_the_lease_is_renewed_and_not_before(node: Node):
    node.order(SUSPEND)
    node.reach_boundary()
    node.agent.look()
    suspended = node.folder.path / SUSPENDED
    assert node.task.status is Status.SUSPENDED and suspended.exists()
    node.leased = False
    node.order(RESUME)
    assert node.stands_still and suspended.exists(), "its shim is not to let it go on"
    node.leased = True
    node.agent.look()
    assert not node.stands_still and not suspended.exists()


@pytest.mark.parametrize(("stopped", "outcome"), [(False, "interrupted"), (True, "stopped")])
async def test_an_end_for_want_of_a_lease_is_no_failure(node: Node, stopped: bool, outcome: str):
    if stopped:
        node.order(STOP)
    ended = {"exit_code": None, "signal": 9, "outcome": "lease_expired", "rank": None, "stderr_tail": "the lease"}
    (node.folder.path / "exit.json").write_text(json.dumps({"version": 2, **ended}))
    node.rank.kill()
    node.rank.wait()
    node.end_shim()
    node.agent.look()
    [fact] = [fact for fact in node.facts if isinstance(fact, JobExited)]
    assert (fact.outcome, fact.stderr_tail) == (outcome, "the lease")


async def test_patience_goes_on_by_the_clock_of_the_agent_before(node: Node, monkeypatch: pytest.MonkeyPatch):
    node.agent.adopt()
    node.order(SUSPEND)
    node.kill_agent()
    own, real = offset_s(), time.time
    try:
        monkeypatch.setattr(time, "time", lambda: real() - 3600.0)
        go_on(own - 3600.0)  # as a process begins that is started now
        node.start_agent()
        assert node.task.asked_since_s is not None and 0 <= now_s() - node.task.asked_since_s < 60
    finally:
        go_on(own)


async def test_the_delay_of_a_suspension_counts_from_the_order_whichever_agent_sees_the_boundary(node: Node):
    node.order(SUSPEND)
    asked_s = node.task.asked_since_s
    node.kill_agent()
    node.reach_boundary()
    node.start_agent()
    assert node.task.asked_since_s == asked_s is not None
    node.agent.look()
    suspended = node.facts[-1]
    assert isinstance(suspended, JobSuspended) and suspended.parked and suspended.delay_s > 0


async def test_what_paces_a_task_ends_before_the_task_is_stopped(node: Node, monkeypatch: pytest.MonkeyPatch):
    seen: list[tuple[Path, str]] = []
    monkeypatch.setattr(acting, "end_pacer", lambda folder: seen.append((folder.path, letter())))

    def letter() -> str:
        return Path(f"/proc/{node.rank.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    node.order(SUSPEND)
    assert not seen
    node.reach_boundary()
    node.agent.look()
    [(path, state)] = seen
    assert path == node.folder.path and state != "T" and isinstance(node.facts[-1], JobSuspended)


async def test_the_grace_of_a_stop_counts_from_the_first_signal_whichever_agent_sends_the_second(node: Node):
    node.order(STOP)
    first_s = node.task.stopping_since_s
    node.kill_agent()
    node.start_agent()
    assert node.task.stopping_since_s == first_s is not None


async def test_a_task_of_before_a_restart_of_the_machine_is_interrupted_and_what_has_its_numbers_is_left_alone(
    node: Node,
):
    node.kill_agent()
    node.end_shim()
    node.start_agent(machine_start="an earlier life")
    node.agent.adopt()
    exited = node.facts[-1]
    assert isinstance(exited, JobExited) and (exited.outcome, exited.signal) == ("interrupted", None)
    assert exited.stderr_tail == "the machine of node n1 was restarted"
    assert node.rank.poll() is None, "it stands for a process of the machine's present life"
    node.kill_agent()
    node.start_agent()
    assert node.machine_start == machine_start() and node.task.status is Status.EXITED


async def test_a_task_that_ended_by_itself_before_a_restart_of_the_machine_has_its_own_result(node: Node):
    node.kill_agent()
    result = {"version": 2, "exit_code": 3, "signal": None, "outcome": "exited", "rank": 0, "stderr_tail": "boom"}
    (node.folder.path / "exit.json").write_text(json.dumps(result))
    node.end_shim()
    node.start_agent(machine_start="an earlier life")
    node.agent.adopt()
    exited = node.facts[-1]
    assert isinstance(exited, JobExited) and (exited.outcome, exited.exit_code) == ("exited", 3)


async def test_a_task_that_was_ended_while_no_agent_was_there_is_interrupted_when_nothing_of_it_is_left(node: Node):
    node.kill_agent()
    node.end_shim()
    node.start_agent()
    node.agent.adopt()
    node.rank.wait(120)  # it goes with its shim, at last by the agent's hand
    node.agent.look()
    exited = node.facts[-1]
    assert isinstance(exited, JobExited) and exited.outcome == "interrupted"
    assert exited.stderr_tail == "its processes were ended while the agent of node n1 was away"


TOLD_TO_END = [
    {"exit_code": None, "signal": 15, "outcome": "signalled"},  # a shell
    {"exit_code": 143, "signal": None, "outcome": "exited"},  # a script that has saved first
]


@pytest.mark.parametrize("result", [None, *TOLD_TO_END], ids=["no result", "signal", "exit status"])
@pytest.mark.parametrize("told", [False, True], ids=["not told yet", "told to end"])
async def test_a_task_that_ends_just_before_its_agent_does_is_interrupted(
    node: Node, monkeypatch: pytest.MonkeyPatch, result: dict[str, object] | None, *, told: bool
):
    monkeypatch.setattr(interruptions, "GRACE_S", 0.0 if told else float("inf"))
    if told:  # and its own end takes longer than any time of grace
        node.agent.agent_ends()
    await ends_before_the_eyes_of_the_agent(node, result)
    assert node.task.status is Status.RUNNING, "the agent may not have heard of its own end yet"
    node.kill_agent()
    node.start_agent()
    node.agent.adopt()
    exited = node.facts[-1]
    assert isinstance(exited, JobExited) and exited.outcome == "interrupted"


@pytest.mark.parametrize(
    ("result", "expected"),
    [(None, ("lost", None, 9)), (TOLD_TO_END[0], ("signalled", None, 15)), (TOLD_TO_END[1], ("exited", 143, None))],
    ids=["no result", "signal", "exit status"],
)
async def test_a_task_that_ends_before_the_eyes_of_an_agent_that_lives_on_has_ended_by_itself(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    result: dict[str, object] | None,
    expected: tuple[str, int | None, int | None],
):
    await ends_before_the_eyes_of_the_agent(node, result)
    monkeypatch.setattr(interruptions, "GRACE_S", 0.0)
    node.agent.look()
    exited = node.facts[-1]
    assert isinstance(exited, JobExited) and (exited.outcome, exited.exit_code, exited.signal) == expected


async def ends_before_the_eyes_of_the_agent(node: Node, result: dict[str, object] | None) -> None:
    node.agent.adopt()
    if result is not None:
        exit_record = {"version": 2, "rank": 0, "stderr_tail": "", **result}
        (node.folder.path / "exit.json").write_text(json.dumps(exit_record))
    node.end_shim()
    node.agent.look()
    if result is None:
        node.rank.wait(120)  # by the agent's hand
    node.agent.look()


async def test_an_agent_that_is_killed_while_it_leaves_still_wants_its_tasks_to_end(node: Node):
    node.agent.stop_all(NodeLeaving(node_id="n1", incarnation=1))
    node.kill_agent()
    node.start_agent()
    assert node.task.want is Want.STOP
