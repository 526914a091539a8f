"""Simulated nodes: what agents and their hardware would do with orders, and what they would report."""

from __future__ import annotations

from typing import Protocol

from libs.contracts.agent import (
    GpuRecovered,
    GpuUnhealthy,
    JobExited,
    JobMovable,
    JobReady,
    JobRestored,
    JobResumed,
    JobStarted,
    JobSuspended,
    MetricsReported,
    NodeLeft,
)
from libs.contracts.base import Event
from libs.contracts.cluster import TaskRef
from libs.contracts.placement import LaunchTask, RestoreTask, ResumeTask, StopTask, SuspendTask
from libs.sim.agenda import Agenda
from libs.sim.clusters import Server
from libs.sim.link import Link, Say
from libs.sim.options import Doom, Options

RESTORE_TRIES, RESTORE_AGAIN_S = 30, 2.0
"""How long a source is asked for a state that cannot be reached, or does not stand still yet."""
Key = tuple[str, int]
"""Job id and attempt: names a task on its node."""


class Gangs(Protocol):
    """What nodes tell about the tasks of gangs, which may run on several of them."""

    def launched(self, order: LaunchTask) -> None:
        """A node has taken the order."""

    def may_go_on(self, key: Key) -> bool:
        """Whether an earlier attempt of the job has left a checkpoint to start from."""

    def started(self, key: Key, node_id: str) -> None:
        """The node's task runs."""

    def suspended(self, key: Key, node_id: str) -> None:
        """The node's task is stopped where it is."""

    def resumed(self, key: Key, node_id: str, gpu_indices: list[int]) -> None:
        """The node's task goes on, on these GPUs."""

    def take_over(self, key: Key, node_id: str, order: RestoreTask) -> bool:
        """The node's task gets the state of an earlier attempt, if that stands still where it is said to be."""

    def stopping(self, key: Key) -> None:
        """A task of the gang was told to end."""

    def ended(self, key: Key, node_id: str) -> int:
        """The node's task is gone. Returns the steps that the attempt has done."""


class Task:
    """One task on one node."""

    __slots__ = (
        "gpu_indices",
        "held",
        "order",
        "parked",
        "partners",
        "running",
        "since_s",
        "stopping",
        "time_limit_s",
        "turning",
        "wanted_gpus",
    )

    def __init__(self, order: LaunchTask) -> None:
        self.order, self.gpu_indices, self.time_limit_s = order, order.gpu_indices, order.time_limit_s
        self.partners = order.packed_with
        self.wanted_gpus = order.gpu_indices
        """Where it is to be when it runs."""
        self.running = False
        """It has been started."""
        self.held = False
        """It is to be suspended, or is."""
        self.parked = False
        """It is suspended, and its memory off the GPUs."""
        self.turning = False
        """It is on its way to being parked, or back."""
        self.since_s = 0.0
        self.stopping = False


class Node:
    """One simulated node with its agent. It obeys orders in their order and reports every fact once."""

    def __init__(self, server: Server, agenda: Agenda, options: Options, gangs: Gangs, say: Say) -> None:
        self.server = server
        self.incarnation = 0
        self.tasks: dict[Key, Task] = {}
        self._agenda, self._options, self._gangs = agenda, options, gangs
        self._link = Link(server.node_id, say)
        self._unhealthy: list[int] = []
        self._waiting: dict[Key, Task] = {}
        """Tasks whose GPUs are still used by another that is about to leave them."""

    @property
    def node_id(self) -> str:
        """Its name."""
        return self.server.node_id

    @property
    def reachable(self) -> bool:
        """Whether it hears and is heard."""
        return self._link.open

    def report(self, key: Key, step: float, values: dict[str, float]) -> None:
        """A task's script says how good it is."""
        self._link.tell(MetricsReported(job_id=key[0], attempt=key[1], node_id=self.node_id, step=step, values=values))

    def join(self) -> None:
        """The agent comes up (again): it delivers what it had journalled, names its tasks, and looks after them."""
        link = self._link
        self.incarnation += 1
        link.agent_up = True
        link.reconnect()
        ended = [(fact.job_id, fact.attempt) for fact in link.unseen if isinstance(fact, JobExited)]
        found = dict.fromkeys([*self.tasks, *ended])
        link.tell(self.server.joined(self.incarnation, [TaskRef(job_id=j, attempt=a) for j, a in found]))
        for index in self._unhealthy:
            link.tell(GpuUnhealthy(node_id=self.node_id, index=index, note="simulated"))
        link.tell_unseen()
        self._read_orders()

    def catch_up(self) -> None:
        """The log can be reached again: deliver facts and read orders that have piled up."""
        self._link.reconnect()
        self._read_orders()

    def _read_orders(self) -> None:
        self._let_in()
        for order in self._link.orders():
            self.obey(order)

    def cut_off(self) -> None:
        """The log cannot be reached from now on; tasks go on, and the agent writes its journal."""
        self._link.connected = False

    def agent_dies(self) -> None:
        """Nobody looks after the tasks; they go on."""
        self._link.agent_up = False

    def crash(self) -> None:
        """The node dies, its tasks with it; the agent finds out when it is back."""
        self._link.agent_up = False
        for key in list(self.tasks):
            self._end(key, "lost")

    def leave(self) -> None:
        """The agent shuts down in order: its tasks are ended, and it says good-bye."""
        for key in list(self.tasks):
            self._gangs.stopping(key)
            self._end(key, "stopped", signal=15)
        for key in list(self._waiting):
            self._stop(key)
        self._link.tell(NodeLeft(node_id=self.node_id, incarnation=self.incarnation, note="simulated"))
        self._link.agent_up = False

    def set_health(self, index: int, healthy: bool) -> None:
        """A GPU fails or recovers."""
        if healthy:
            self._unhealthy.remove(index)
            self._link.tell(GpuRecovered(node_id=self.node_id, index=index))
        else:
            self._unhealthy.append(index)
            self._link.tell(GpuUnhealthy(node_id=self.node_id, index=index, note="simulated"))

    def obey(self, order: Event) -> None:
        """Carry out one order; one for a task that is not here means nothing any more."""
        if not self.reachable:
            self._link.keep(order)
        elif isinstance(order, LaunchTask):
            self._launch(order)
        elif isinstance(order, StopTask):
            self._stop((order.job_id, order.attempt))
        elif isinstance(order, SuspendTask):
            self._suspend((order.job_id, order.attempt))
        elif isinstance(order, ResumeTask):
            self._resume(order)
        elif isinstance(order, RestoreTask):
            self._restore(order)

    def fail(self, key: Key, doom: Doom) -> None:
        """The task ends badly by itself."""
        self._end(key, "signalled" if doom.signal else "exited", doom.exit_code, doom.signal, doom.stderr_tail)

    def finish(self, key: Key) -> None:
        """The task has done its work."""
        self._end(key, "exited", exit_code=0)

    def _launch(self, order: LaunchTask) -> None:
        self._waiting[(order.job_id, order.attempt)] = Task(order)
        self._launch_waiting()

    def _launch_waiting(self) -> None:
        """Start tasks as soon as their GPUs are empty: one that was told to leave may still be on them."""
        for key, task in list(self._waiting.items()):
            # Who prepares to take over a job may do so beside it.
            beside = [*task.partners, key[0]] if task.order.restores else task.partners
            if not self._taken(key, task.gpu_indices, beside):
                self.tasks[key] = self._waiting.pop(key)
                self._gangs.launched(task.order)
                overhead_s = self._options.checkpoint_overhead_s if self._gangs.may_go_on(key) else 0.0
                self._agenda.after(self._options.start_delay_s + overhead_s, self._start, key)

    def _start(self, key: Key) -> None:
        task = self.tasks.get(key)
        if task is None or task.stopping:
            return
        task.since_s = self._agenda.now_s
        self._link.tell(JobStarted(job_id=key[0], attempt=key[1], node_id=self.node_id, pid=1))
        if task.order.restores:
            self._link.tell(JobReady(job_id=key[0], attempt=key[1], node_id=self.node_id))
            return
        task.running = True
        self._gangs.started(key, self.node_id)
        if self._options.move_delay_s is not None:
            elastic = task.order.virtual_ranks is not None
            self._link.tell(JobMovable(job_id=key[0], attempt=key[1], node_id=self.node_id, resizable=elastic))
        self._turn(key, task)
        if task.time_limit_s is not None:
            self._agenda.at(self._agenda.now_s + task.time_limit_s, self._time_out, key, task, awaited=False)

    def _restore(self, order: RestoreTask) -> None:
        key = (order.job_id, order.attempt)
        if key in self.tasks:
            self._agenda.after(self._options.move_delay_s or 0.0, self._restored, key, self.tasks[key], order)

    def _restored(self, key: Key, task: Task, order: RestoreTask, tries: int = 0) -> None:
        """It has its state, and stands still until it is told to go on."""
        if self.tasks.get(key) is not task or task.stopping:
            return
        if not self._gangs.take_over(key, self.node_id, order):
            if tries < RESTORE_TRIES:
                self._agenda.after(RESTORE_AGAIN_S, self._restored, key, task, order, tries + 1)
            else:
                self._end(key, "restore_failed", stderr_tail="simulated: the source cannot be reached")
            return
        task.running = task.held = task.parked = True
        self._link.tell(JobRestored(job_id=key[0], attempt=key[1], node_id=self.node_id))

    def _time_out(self, key: Key, task: Task) -> None:
        """The task has run for as long as its user allows."""
        if self.tasks.get(key) is task and not task.stopping:
            self._end(key, "time_limit", signal=9)

    def _stop(self, key: Key) -> None:
        if key in self._waiting:
            del self._waiting[key]
            self._report_exit(key, "stopped")
            return
        task = self.tasks.get(key)
        if task is not None and not task.stopping:
            task.stopping = True
            self._gangs.stopping(key)
            signal = 15 if task.running else None
            self._agenda.after(self._options.stop_delay_s, self._end, key, "stopped", None, signal)

    def _suspend(self, key: Key) -> None:
        task = self.tasks.get(key) or self._waiting.get(key)
        if task is not None:
            task.held = True
            self._turn(key, task)

    def _resume(self, order: ResumeTask) -> None:
        key = (order.job_id, order.attempt)
        task = self.tasks.get(key) or self._waiting.get(key)
        if task is not None:
            task.held = False
            task.wanted_gpus = order.gpu_indices or task.gpu_indices
            task.partners = order.packed_with
            self._turn(key, task)

    def _turn(self, key: Key, task: Task) -> None:
        """Bring the task closer to what is wanted of it: off its GPUs, or back on those that it is to have."""
        if not task.running or task.stopping or task.turning:
            return
        if not task.parked and (task.held or task.wanted_gpus != task.gpu_indices):
            task.turning = True
            self._agenda.after(self._options.suspend_delay_s, self._parked, key, task)
        elif task.parked and not task.held and not self._taken(key, task.wanted_gpus, task.partners):
            task.turning, task.parked, task.gpu_indices = True, False, task.wanted_gpus
            self._agenda.after(self._options.resume_delay_s, self._back, key, task)

    def _parked(self, key: Key, task: Task) -> None:
        if self.tasks.get(key) is not task or task.stopping:
            return
        task.turning, task.parked = False, True
        delay_s = self._options.suspend_delay_s
        self._link.tell(JobSuspended(job_id=key[0], attempt=key[1], node_id=self.node_id, parked=True, delay_s=delay_s))
        self._gangs.suspended(key, self.node_id)
        self._turn(key, task)
        self._let_in()

    def _back(self, key: Key, task: Task) -> None:
        if self.tasks.get(key) is not task or task.stopping:
            return
        task.turning = False
        gpus, delay_s = task.gpu_indices, self._options.resume_delay_s
        self._link.tell(
            JobResumed(job_id=key[0], attempt=key[1], node_id=self.node_id, gpu_indices=gpus, delay_s=delay_s)
        )
        self._gangs.resumed(key, self.node_id, gpus)
        self._turn(key, task)

    def _taken(self, key: Key, gpu_indices: list[int], partners: list[str]) -> bool:
        """Whether another task, no partner, has not left some of these GPUs yet."""
        return any(
            index in gpu_indices
            for other, task in self.tasks.items()
            if other != key and other[0] not in partners and not task.parked
            for index in task.gpu_indices
        )

    def _end(
        self,
        key: Key,
        outcome: str,
        exit_code: int | None = None,
        signal: int | None = None,
        stderr_tail: str = "",
    ) -> None:
        task = self.tasks.pop(key, None)
        if task is None:
            return
        steps = self._gangs.ended(key, self.node_id)
        ran_s = round(self._agenda.now_s - task.since_s, 6) if task.running else 0.0
        self._report_exit(key, outcome, exit_code, signal, stderr_tail, ran_s, steps)
        self._let_in()

    def _let_in(self) -> None:
        """GPUs have become free: who waits for them comes in."""
        if not self._link.agent_up:
            return
        self._launch_waiting()
        for key, task in list(self.tasks.items()):
            if task.parked and not task.held:
                self._turn(key, task)

    def _report_exit(
        self,
        key: Key,
        outcome: str,
        exit_code: int | None = None,
        signal: int | None = None,
        stderr_tail: str = "",
        ran_s: float = 0.0,
        steps: int = 0,
    ) -> None:
        self._link.tell(
            JobExited(
                job_id=key[0],
                attempt=key[1],
                node_id=self.node_id,
                exit_code=exit_code,
                signal=signal,
                outcome=outcome,
                stderr_tail=stderr_tail,
                ran_s=ran_s,
                minibatches_total=steps,
            )
        )
