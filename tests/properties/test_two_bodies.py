"""The agent and the simulated node, given the same orders and the same world, report the same facts in the same order.

The simulated node is the simulator's. The agent is its loop of supervision in virtual time: it looks at all of its
tasks at every change and now and then, and tells the processes by the signals and turns of the live agent. Its
processes are written for this test, in the words of the harness and the shim.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from torch_agent.acting import SIGNALS, TURNS

from libs.contracts.agent import NodeLeaving, NodeLeft
from libs.contracts.base import Event
from libs.contracts.cluster import TaskRef
from libs.contracts.placement import (
    LaunchTask,
    RestoreTask,
    ResumeTask,
    SetClass,
    SetComputeShare,
    SetMemoryLimit,
    StateSource,
    StopTask,
    SuspendTask,
)
from libs.contracts.reasons import Reason
from libs.coordination.readings import Readings
from libs.node.admission import Admission, Told, share_alone
from libs.node.advance import TAKING_OVER, Action, advance, next_look_s
from libs.node.fetching import FETCH_RETRY_S, Answer, asks_again
from libs.node.reports import next_report_s, report_due
from libs.node.seen import Ended, Report, Seen, Stillness, Takeover
from libs.node.task import LEAVING_PATIENCE_S, Order, Status, Task, apply_order, stop_all
from libs.sim.agenda import Agenda
from libs.sim.clusters import Server
from libs.sim.nodes import Node
from libs.sim.options import Doom, Options
from libs.sim.processes import Key
from libs.testing.builders import launch
from libs.testing.effort import searching

NODE = Server(node_id="n1", gpu_type="v100", gpus=2, rack="r0")
POLL_S = 2.75
CALM_S = 200.0
"""After the last step of a history: whatever is under way ends, and guests come back to an owner that has settled."""
Said = list[tuple[float, Event]]
"""What came to the log, and when."""
Allowed = list[tuple[float, Key, tuple[int | None, ...], float]]
"""(When, task, limits, share): what processes that do not stand still were told that they may have of their GPUs."""


@dataclass(frozen=True)
class Came:
    """What has come of a history."""

    said: Said
    allowed: Allowed
    active: list[tuple[str, Status]]
    """The tasks that have not ended."""
    stuck: list[str] = field(default_factory=list)
    """Those of them that should have gone on: why they have not."""


@dataclass(frozen=True)
class Life:
    """How the processes of a task end by themselves, and when their script reports, in seconds from their start."""

    lasts_s: float | None
    ended: Ended
    reports_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class History:
    """What a node goes through."""

    options: Options
    steps: tuple[tuple[float, str, Order | None], ...]
    """(When, what, the order)."""
    lives: dict[Key, Life]
    source: tuple[tuple[float, Answer], ...]
    """(From when on, what the source of a move says)."""

    @property
    def end_s(self) -> float:
        """When nothing has been asked for, and nothing has gone wrong, for a while."""
        return self.steps[-1][0] + CALM_S

    def answer(self, now_s: float) -> Answer:
        """What the source says now."""
        return [said for from_s, said in self.source if from_s <= now_s][-1]


# The agent.


@dataclass
class Processes:
    """A shim with its rank, and what the two have left for whichever agent looks."""

    order: LaunchTask
    turn: int = 0
    """Of the control file; odd: stand still."""
    acknowledged_turn: int = 0
    started: bool = False
    parked: bool = False
    stopped: bool = False
    """By SIGSTOP."""
    still: bool = False
    """Parked or stopped, until they go on."""
    parked_at_s: float | None = None
    state_is_there: bool = False
    restored: bool = False
    ended: Ended | None = None
    told_to_end: bool = False
    told: Told = field(default_factory=Told)
    """In the control file."""
    applied: int = 0
    """The number of what they keep to."""
    reports: list[Report] = field(default_factory=list)
    life_planned: bool = False

    @property
    def key(self) -> Key:
        return self.order.job_id, self.order.attempt


class Agent:
    """The loop of supervision, in virtual time."""

    def __init__(self, history: History, agenda: Agenda) -> None:
        self.history, self.agenda = history, agenda
        self.tasks: dict[str, Task] = {}
        self.processes: dict[str, Processes] = {}
        self.fetches: dict[str, str] = {}
        """{task key: why the fetch has failed; empty: it has not}; in the agent's memory alone."""
        self.life = 0
        """Of the agent's process, so that what it has begun ends with it."""
        self.up, self.connected, self.leaving, self.back_already = False, True, False, False
        self.incarnation = 0
        self.journal: list[Event] = []
        self.orders: list[Order] = []
        self.said: Said = []
        self.wakes: set[float] = set()
        self.admission = Admission()
        self.given: dict[str, Told] = {}
        """{task key: what this agent's coordination gives it}; in the agent's memory alone."""

    # What befalls it.

    def do(self, what: str, order: Order | None) -> None:
        if order is not None:
            self.orders.append(order)
            self.read_orders()
        elif what == "restart":
            self.die()
        elif what == "cut":
            self.connected = not self.up and self.connected
        elif what == "crash":
            self.die()
            for key, processes in list(self.processes.items()):
                if not processes.started:
                    del self.processes[key]
                    processes.ended = Ended(exit_code=None, signal=None, outcome="lost")
                else:
                    self.end(processes, Ended(exit_code=None, signal=9, outcome="lost"))
        elif what == "leave":
            self.leaving = True
            self.report(NodeLeaving(node_id="n1", incarnation=self.incarnation, note="simulated"))
            stop_all(self.tasks)
            self.agenda.after(LEAVING_PATIENCE_S, self.left, self.incarnation)
            self.look()
        elif what == "join":
            self.join()
        elif what == "catch up":
            self.connected = True
            self.publish()
            self.read_orders()

    def die(self) -> None:
        self.up = False
        self.life += 1
        self.fetches.clear()
        self.admission, self.given = Admission(), {}
        stored = msgspec.json.encode(self.tasks)
        self.tasks = msgspec.json.decode(stored, type=dict[str, Task])

    def join(self) -> None:
        if self.leaving:
            self.back_already = True
            return
        self.up = self.connected = True
        self.incarnation += 1
        self.publish()
        tasks = [TaskRef(job_id=task.order.job_id, attempt=task.order.attempt) for task in self.active()]
        self.report(NODE.joined(self.incarnation, tasks))
        self.read_orders()
        self.look()

    def left(self, incarnation: int) -> None:
        if self.leaving and incarnation == self.incarnation:
            self.leaving = False
            if self.up:
                self.report(NodeLeft(node_id="n1", incarnation=self.incarnation, note="simulated"))
            self.die()
            if self.back_already:
                self.back_already = False
                self.join()

    def read_orders(self) -> None:
        if self.up and self.connected and not self.leaving:
            orders, self.orders = self.orders, []
            for order in orders:
                apply_order(self.tasks, order)
            self.look()

    def report(self, fact: Event) -> None:
        self.journal.append(fact)
        self.publish()

    def publish(self) -> None:
        if self.up and self.connected:
            self.said += [(self.agenda.now_s, fact) for fact in self.journal]
            self.journal.clear()

    def told(self) -> dict[Key, Told]:
        going = [self.processes[task.key] for task in self.active() if task.has_begun]
        return {each.key: each.told for each in going}

    # Its loop.

    def active(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.status is not Status.EXITED]

    def look(self) -> None:
        while self.up:
            self.coordinate()
            before = [(task.key, task.status) for task in self.active()]
            for task in self.active():
                self.look_at(task)
            if [(task.key, task.status) for task in self.active()] == before:
                break
        if self.up and self.leaving and not self.active():
            self.left(self.incarnation)

    def look_at(self, task: Task) -> None:
        step = advance(task, self.see(task), self.agenda.now_s)
        for action in step.actions:
            self.act(action, task)
        for fact in step.facts:
            self.report(fact)
        wakes = [next_look_s(task)]
        if task.reported_at_s is not None:
            wakes.append(next_report_s(task.reported_at_s, task.started_s))
        self.wake(*wakes)

    def wake(self, *wakes: float | None) -> None:
        for wake_s in wakes:
            if wake_s is not None and wake_s > self.agenda.now_s and wake_s not in self.wakes:
                self.wakes.add(wake_s)
                # Agendas round to whole microseconds: the first may come too early.
                self.agenda.at(wake_s, self.look)
                self.agenda.at(wake_s + 1e-6, self.look)

    def coordinate(self) -> None:
        """Steps until nothing more follows; a live agent takes ten a second."""
        goes_on = True
        while goes_on:
            goes_on = self.step_of_coordination()

    def step_of_coordination(self) -> bool:
        active, follows = self.active(), False
        before = [(each.told, each.applied) for each in self.processes.values()]
        left = [key for key, each in self.processes.items() if any(each.told.limits) and key not in self.given]
        gpus = self.admission.begin(active, left)
        for index in gpus:
            here = self.admission.here(index)
            shown = [
                self.admission.reading(
                    task,
                    index,
                    each.told,
                    applied_number=each.applied,
                    parked=each.parked and self.history.options.parks,
                )
                for task in here
                for each in [self.processes.get(task.key, Processes(order=task.order))]
            ]
            readings = Readings(node_id="n1", index=index, capacity_bytes=NODE.memory_bytes, tasks=shown)
            follows |= bool(self.admission.step(index, readings, self.agenda.now_s).step.actions)
            self.wake(self.admission.next_s(index, self.agenda.now_s))
        follows |= bool(self.admission.come_back())
        given_now = self.admission.given(gpus)
        self.admission.end()
        now = {each.task.key: Told(number=1, limits=each.limits, share_ratio=each.share_ratio) for each in given_now}
        before_it, self.given = (
            self.given,
            {key: each for key, each in (self.given | now).items() if self.admission.gives(key)},
        )
        follows |= before_it.keys() != self.given.keys()
        numbers = {task.key: self.keep(task) for task in active if task.status is not Status.ACCEPTED}
        for each in given_now:
            if each.task.key in numbers and self.admission.gives(each.task.key):
                follows |= self.admission.wrote(each.task, numbers[each.task.key])
        return follows or before != [(each.told, each.applied) for each in self.processes.values()]

    def keep(self, task: Task) -> int:
        processes = self.processes[task.key]
        otherwise = Told(limits=processes.told.limits, share_ratio=share_alone(task.role, task.share_bound))
        found = self.given.get(task.key, otherwise)
        return self.tell(processes, tuple(found.limits), found.share_ratio)

    def tell(self, processes: Processes, limits: tuple[int | None, ...], share_ratio: float) -> int:
        if (limits, share_ratio) != (tuple(processes.told.limits), processes.told.share_ratio):
            processes.told = Told(number=processes.told.number + 1, limits=limits, share_ratio=share_ratio)
            if self.history.options.limit_delay_s:
                self.after(
                    self.history.options.limit_delay_s, processes, self.applies, processes, processes.told.number
                )
            elif not processes.still:
                processes.applied = processes.told.number
        return processes.told.number

    def see(self, task: Task) -> Seen:
        processes = self.processes.get(task.key)
        wait = self.admission.wait(task, self.active())
        if processes is None:
            return Seen(wait=wait)
        seen = Seen(
            launched=True, pid=1 if processes.started else None, ended=processes.ended, wait=wait,
            report=self.due_report(task, processes),
        )  # fmt: skip
        if task.asked_since_s is None and task.status not in TAKING_OVER and task.status is not Status.RUNNING:
            return seen
        movable = self.history.options.move_delay_s is not None and processes.started and not task.order.restores
        stillness = None
        if processes.parked_at_s is not None:
            stillness = Stillness(
                parked=self.history.options.parks, bytes_parked=0, bytes_left=0, park_s=0.0, unpark_s=0.0,
                parked_at_s=processes.parked_at_s, minibatches_total=0,
            )  # fmt: skip
        return msgspec.structs.replace(
            seen,
            harnessed=True,
            acknowledged=processes.acknowledged_turn == processes.turn,
            stillness=stillness,
            movable=movable,
            resizable=movable and task.order.virtual_ranks is not None,
            takeover=Takeover(
                ready=processes.started, restored=processes.restored, failed=self.fetches.get(task.key, "")
            ),
        )

    def due_report(self, task: Task, processes: Processes) -> Report | None:
        if not report_due(task, ended=processes.ended is not None, now_s=self.agenda.now_s) or not processes.reports:
            return None
        last = processes.reports[-1]
        processes.reports.clear()
        return last

    def act(self, action: Action, task: Task) -> None:
        if action is Action.LAUNCH:
            self.start_shim(task)
            return
        processes = self.processes[task.key]
        if action is Action.FETCH:
            if task.key not in self.fetches and not processes.state_is_there:
                self.fetches[task.key] = ""
                self.after(0.0, processes, self.ask, task, processes, self.agenda.now_s, self.life)
            return
        suspend = TURNS.get(action)
        if suspend is not None and suspend is not bool(processes.turn % 2):
            processes.turn += 1
        for number in SIGNALS[action]:
            self.signal(processes, number)
        if suspend is not None and not processes.told_to_end:
            self.turned(processes, task.gpu_indices)

    def ask(self, task: Task, processes: Processes, began_s: float, life: int) -> None:
        assert task.restore is not None
        if life != self.life:
            return
        said = self.history.answer(self.agenda.now_s)
        if said is Answer.HERE:
            processes.state_is_there = True
            self.after(self.history.options.move_delay_s or 0.0, processes, self.load, processes)
        elif said is Answer.LATER and asks_again(began_s, self.agenda.now_s):
            self.after(FETCH_RETRY_S, processes, self.ask, task, processes, began_s, life)
        else:
            attempt = task.restore.from_attempt
            self.fetches[task.key] = f"simulated: attempt {attempt} of {task.order.job_id} {said}"
            self.look()

    # Its processes.

    def after(self, delay_s: float, processes: Processes, action: Callable[..., None], *args: Any) -> None:
        """What processes do later, if they live then."""

        def alive() -> None:
            if processes.ended is None:
                action(*args)

        self.agenda.after(delay_s, alive)

    def start_shim(self, task: Task) -> None:
        found = self.given.get(task.key, Told(number=1, share_ratio=share_alone(task.role, task.share_bound)))
        processes = Processes(order=task.order, told=found, applied=found.number)
        if task.order.restores:
            processes.turn = processes.acknowledged_turn = 1
        self.processes[task.key] = processes
        self.after(self.history.options.start_delay_s, processes, self.start, processes)

    def start(self, processes: Processes) -> None:
        processes.started = True
        limit_s = processes.order.time_limit_s
        if not processes.order.restores:
            self.plan_life(processes)
        self.look()
        if limit_s is not None:
            over = Ended(exit_code=None, signal=9, outcome="time_limit")
            self.after(limit_s, processes, self.end, processes, over)

    def applies(self, processes: Processes, number: int) -> None:
        """A boundary at which they find another limit."""
        if not processes.still and processes.applied < number:
            processes.applied = number
            self.look()

    def plan_life(self, processes: Processes) -> None:
        life = self.history.lives[processes.key]
        if processes.life_planned:
            return
        processes.life_planned = True
        if life.lasts_s is not None:
            self.after(life.lasts_s, processes, self.end, processes, life.ended)
        for step, delay_s in enumerate(life.reports_s):
            self.after(delay_s, processes, self.say, processes, Report(step=float(step), values={"loss": 1.0}))

    def say(self, processes: Processes, report: Report) -> None:
        processes.reports.append(report)
        self.look()

    def load(self, processes: Processes) -> None:
        processes.restored = processes.parked = processes.still = True
        self.look()

    def turned(self, processes: Processes, gpu_indices: list[int]) -> None:
        """The processes find a new turn."""
        options, turn = self.history.options, processes.turn
        if turn % 2:
            self.after(0.0 if processes.parked else options.suspend_delay_s, processes, self.boundary, processes, turn)
        elif not processes.parked and processes.acknowledged_turn == turn - 2:
            self.after(0.0, processes, self.goes_on, processes, turn)
        else:
            self.after(options.resume_delay_s if processes.parked else 0.0, processes, self.goes_on, processes, turn)

    def boundary(self, processes: Processes, turn: int) -> None:
        if processes.turn == turn and not processes.told_to_end and (processes.parked or not processes.stopped):
            processes.parked, processes.still, processes.acknowledged_turn = True, True, turn
            processes.parked_at_s = self.agenda.now_s
            self.look()

    def goes_on(self, processes: Processes, turn: int) -> None:
        if processes.turn == turn and not processes.told_to_end:
            if processes.still:
                processes.still, processes.applied = False, processes.told.number
            processes.parked, processes.acknowledged_turn = False, turn
            if processes.order.restores:
                self.plan_life(processes)
            self.look()

    def signal(self, processes: Processes, number: int) -> None:
        if number == signal.SIGSTOP:
            processes.stopped = processes.still = True
        elif number == signal.SIGCONT:
            processes.stopped = False
        elif number == signal.SIGTERM:
            processes.told_to_end = True
            ended = Ended(exit_code=None, signal=15, outcome="signalled")
            self.after(self.history.options.stop_delay_s, processes, self.end, processes, ended)
        elif number == signal.SIGKILL:
            ended = Ended(exit_code=None, signal=9, outcome="signalled")
            self.after(0.0, processes, self.end, processes, ended)

    def end(self, processes: Processes, ended: Ended) -> None:
        if processes.ended is None:
            processes.ended = ended
            self.look()


def by_the_agent(history: History) -> Came:
    agenda = Agenda()
    agent = Agent(history, agenda)
    agenda.at(0.0, agent.join)
    for time_s, what, order in history.steps:
        agenda.at(time_s, agent.do, what, order)
    for number in range(int(history.end_s / POLL_S)):
        agenda.at(number * POLL_S + 0.0137, agent.look)
    allowed = run(agenda, history.end_s, agent.told)
    active = agent.active()
    waits = {task.key: agent.admission.wait(task, active) for task in active if task.waits_for_gpus}
    stuck = [f"{key}: {wait}" for key, wait in waits.items() if wait is None or wait.for_room]
    stuck += [f"{task.key} has not come back" for task in active if task.yielding and task.stands_still]
    return Came(agent.said, allowed, [(task.key, task.status) for task in active], stuck)


# The simulated node.


class World:
    """What befalls simulated processes, as the history has it."""

    def __init__(self, history: History, agenda: Agenda) -> None:
        self.history, self.agenda = history, agenda
        self.said: Said = []
        self.node = Node(NODE, agenda, history.options, self, self.say)
        self.begun: set[Key] = set()
        self.over: set[Key] = set()

    def say(self, node_id: str, number: int, event: Event, time_s: float) -> None:
        self.said.append((self.agenda.now_s, event))

    def do(self, what: str, order: Order | None) -> None:
        node = self.node
        if order is not None:
            node.carry_out(order)
        else:
            steps = {"restart": node.agent_dies, "cut": node.cut_off, "crash": node.crash, "leave": node.leave}
            {**steps, "join": node.join, "catch up": node.catch_up}[what]()

    def told(self) -> dict[Key, Told]:
        going = [task.order for task in self.node.tasks.values() if task.has_begun]
        found = {(order.job_id, order.attempt): self.node.allowance((order.job_id, order.attempt)) for order in going}
        return {key: each for key, each in found.items() if each is not None}

    def launched(self, order: LaunchTask) -> None: ...
    def withdrawn(self, key: Key, node_id: str) -> None: ...
    def suspended(self, key: Key, node_id: str) -> None: ...
    def fenced(self, key: Key, node_id: str, fenced: bool) -> None: ...
    def stopping(self, key: Key) -> None: ...
    def take_over(self, key: Key, node_id: str, order: RestoreTask) -> None: ...
    def takeover_failure(self, key: Key, node_id: str) -> None: ...

    def may_go_on(self, key: Key) -> bool:
        return False

    def ask(self, launch: LaunchTask, order: RestoreTask) -> Answer:
        return self.history.answer(self.agenda.now_s)

    def is_answered(self) -> bool:
        return True

    def ended(self, key: Key, node_id: str) -> int:
        self.over.add(key)
        return 0

    def report(self, key: Key, step: float) -> None:
        if key not in self.over:
            self.node.report(key, step, {"loss": 1.0})

    def resumed(self, key: Key, node_id: str, gpu_indices: list[int]) -> None:
        if key not in self.begun:
            self.started(key, node_id)

    def started(self, key: Key, node_id: str) -> None:
        self.begun.add(key)
        life = self.history.lives[key]
        if life.lasts_s is not None:
            if life.ended.exit_code == 0:
                self.agenda.after(life.lasts_s, self.node.finish, key)
            else:
                doom = Doom(at_ratio=0.0, exit_code=life.ended.exit_code, signal=life.ended.signal, stderr_tail="")
                self.agenda.after(life.lasts_s, self.node.fail, key, doom)
        for step, delay_s in enumerate(life.reports_s):
            self.agenda.after(delay_s, self.report, key, float(step))


def by_the_simulated_node(history: History) -> Came:
    agenda = Agenda()
    world = World(history, agenda)
    agenda.at(0.0, world.node.join)
    for time_s, what, order in history.steps:
        agenda.at(time_s, world.do, what, order)
    allowed = run(agenda, history.end_s, world.told)
    active = [task for task in world.node.tasks.values() if task.status is not Status.EXITED]
    return Came(world.said, allowed, [(task.key, task.status) for task in active])


def meaning(told: Told) -> tuple[tuple[int | None, ...], float]:
    """Limits and share; to have no limit is the same whether or not that was said."""
    limits = tuple(told.limits)
    return (limits if any(limit is not None for limit in limits) else (), told.share_ratio)


def run(agenda: Agenda, end_s: float, told: Callable[[], dict[Key, Told]]) -> Allowed:
    """Until then; of what is told at one moment the last word counts."""
    before: dict[Key, tuple[tuple[int | None, ...], float]] = {}
    allowed: Allowed = []
    while agenda.next_s is not None and agenda.next_s < end_s:
        agenda.do_next()
        if agenda.next_s == agenda.now_s:
            continue
        found = {key: meaning(each) for key, each in sorted(told().items())}
        allowed += [(agenda.now_s, key, *each) for key, each in found.items() if before.get(key) != each]
        before |= found
    return allowed


# Histories.

DELAYS = st.sampled_from([0.0, 0.5, 7.0])
LONG = st.sampled_from([0.0, 0.5, 7.0, 41.0])
"""Longer than the patience with a boundary."""
ENDS = st.sampled_from(
    [
        Ended(exit_code=0, signal=None, outcome="exited"),
        Ended(exit_code=1, signal=None, outcome="exited"),
        Ended(exit_code=None, signal=11, outcome="signalled"),
    ]
)
GPUS = st.sampled_from([[0], [1], [0, 1]])
ROLES = st.sampled_from(["owner", "guest", "guest"])
TEST = Reason(code="Test", message="")
FAULTS = {"restart": "join", "cut": "catch up", "crash": "join", "leave": "join"}


@st.composite
def lives(draw: st.DrawFn) -> Life:
    reports = tuple(sorted(draw(st.sets(st.integers(0, 400), max_size=4))))
    return Life(
        lasts_s=draw(st.one_of(st.none(), st.integers(0, 90).map(lambda seconds: seconds + 0.25))),
        ended=draw(ENDS),
        reports_s=tuple(0.1 * tenths for tenths in reports),
    )


@st.composite
def launches(draw: st.DrawFn, key: Key) -> LaunchTask:
    gpus = draw(GPUS)
    return launch(
        key[0],
        "true",
        gpus=len(gpus),
        attempt=key[1],
        gpu_indices=gpus,
        restores=key[1] > 1,
        role=draw(ROLES),
        packed_with=draw(st.lists(st.sampled_from(["a", "b"]), max_size=1)),
        time_limit_s=draw(st.sampled_from([None, None, None, 20])),
        virtual_ranks=draw(st.sampled_from([None, 8])),
    )


@st.composite
def later_orders(draw: st.DrawFn, key: Key) -> Order:
    about = {"node_id": "n1", "job_id": key[0], "attempt": key[1]}
    of_a_move = ["restore", "restore", "restore", "resume", "suspend", "stop"]
    of_a_guest = ["suspend", "suspend", "resume", "resume", "resume", "stop", "class", "share", "limit"]
    kind = draw(st.sampled_from(of_a_move if key[1] > 1 else of_a_guest))
    if kind == "suspend":
        return SuspendTask(**about)
    if kind == "resume":
        partners = draw(st.lists(st.sampled_from(["a", "b"]), max_size=1))
        gpus = draw(st.one_of(st.just([]), GPUS))
        return ResumeTask(**about, gpu_indices=gpus, packed_with=partners, role=draw(ROLES))
    if kind == "class":
        return SetClass(**about, role=draw(ROLES))
    if kind == "share":
        return SetComputeShare(**about, share_ratio=draw(st.sampled_from([None, 0.0, 0.5])))
    if kind == "limit":
        limits = st.sampled_from([None, 0, NODE.memory_bytes // 2])
        return SetMemoryLimit(**about, limit_bytes=draw(limits))
    if kind == "stop":
        grace_s = draw(st.sampled_from([0.0, 5.0, 10.0]))
        return StopTask(**about, grace_s=grace_s, reason=TEST)
    source = StateSource(node_id="n2", address="n2", port=1, first_rank=0)
    return RestoreTask(**about, from_attempt=key[1] - 1, sources=[source])


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Up to 4 tasks on 2 GPUs, their orders, and up to 3 troubles that do not overlap."""
    keys: list[Key] = [("a", 1), ("b", 1), ("c", 1)]
    ordered = draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
    if draw(st.booleans()):
        ordered.insert(draw(st.integers(0, len(ordered))), ("a", 2))
    time_s, begun, steps, trouble = 0.0, [], [], ""
    waiting = list(ordered)
    for number in range(draw(st.integers(2, 16))):
        # No two steps at one time: which of them comes first would be a matter of taste.
        time_s += draw(st.sampled_from([0.0, 0.3, 2.0, 11.0, 33.0])) + 0.001 * (number + 1)
        what = draw(st.sampled_from(["launch", "launch", "order", "order", "order", "order", "fault"]))
        if what == "fault" and trouble:
            steps.append((time_s, FAULTS[trouble], None))
            trouble = ""
        elif what == "fault":
            trouble = draw(st.sampled_from(list(FAULTS)))
            steps.append((time_s, trouble, None))
        elif waiting and (what == "launch" or not begun):
            begun.append(waiting.pop(0))
            steps.append((time_s, "order", draw(launches(begun[-1]))))
        else:
            steps.append((time_s, "order", draw(later_orders(draw(st.sampled_from(begun))))))
    if trouble:
        steps.append((time_s + 1.0, FAULTS[trouble], None))
    source = [(0.0, draw(st.sampled_from([Answer.LATER, Answer.LATER, Answer.HERE, Answer.NEVER])))]
    for _ in range(draw(st.integers(0, 3))):
        source.append((source[-1][0] + draw(st.sampled_from([1.2, 7.8, 31.3])), draw(st.sampled_from(Answer))))
    options = Options(
        start_delay_s=draw(DELAYS),
        stop_delay_s=draw(st.sampled_from([0.0, 0.5, 7.0, 30.0])),
        suspend_delay_s=draw(LONG),
        resume_delay_s=draw(LONG),
        limit_delay_s=draw(LONG),
        parks=draw(st.booleans()),
        move_delay_s=draw(st.sampled_from([None, 0.0, 0.5, 7.0])),
    )
    return History(
        options=options, steps=tuple(steps), lives={key: draw(lives()) for key in ordered}, source=tuple(source)
    )


@given(histories())
@searching(by_default=400, thorough=2000)
def test_the_agent_and_the_simulated_node_report_the_same_facts(history: History):
    simulated, real = by_the_simulated_node(history), by_the_agent(history)
    assert simulated.said == real.said
    assert simulated.allowed == real.allowed
    assert simulated.active == real.active
    assert real.stuck == [], "a task waits for room that nobody has"
