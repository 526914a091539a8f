"""Simulated nodes: the node core with processes that are simulated, as a live agent is the node core with real ones.

Each time that something happens on a node its agent looks at its tasks in the order of their launch orders until none
comes further: the rounds of a live agent, without the time that passes between them. A live agent looks at all of its
tasks. Here those are passed over of which there is nothing new, and that wait for nothing: a look would change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec.structs import replace

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, JobExited, NodeLeaving, NodeLeft, NodeTested
from libs.contracts.base import Event
from libs.contracts.cluster import TaskRef
from libs.contracts.envelope import whole_microseconds
from libs.contracts.introspection import NodeLost
from libs.contracts.placement import CheckGpus, LaunchTask
from libs.node.admission import Told, taken
from libs.node.advance import Action, advance, next_look_s
from libs.node.fetching import FETCH_RETRY_S, Answer, answer, asks_again
from libs.node.reports import next_report_s, report_due
from libs.node.seen import Ended, Seen, Wait
from libs.node.task import LEAVING_PATIENCE_S, Order, Status, Task, apply_order, stop_all, task_key
from libs.sim.admitting import Admitting
from libs.sim.agenda import Agenda
from libs.sim.clusters import Server
from libs.sim.link import Link, Say
from libs.sim.options import Doom, Options
from libs.sim.processes import SIGKILL, Gangs, Key, Processes
from libs.sim.sharing.beside import Beside

_WITHOUT_LEASE = Ended(
    exit_code=None, signal=SIGKILL, outcome="interrupted", stderr_tail="its node had no lease for too long"
)

PROOF_LOOK_S = 0.25
"""How often an agent looks how far placement has come, while the lease of its node waits for that."""


class Node:
    """One simulated node with its agent. It carries out orders in their order and reports every fact once."""

    def __init__(
        self,
        server: Server,
        agenda: Agenda,
        options: Options,
        gangs: Gangs,
        say: Say,
        find_lost: Callable[[NodeLost], None] = lambda lost: None,
    ) -> None:
        """A node without an agent yet.

        Args:
            say: appends its facts.
            find_lost: appends that introspection has not heard of it for too long.
        """
        self.server = server
        self._find_lost = find_lost
        self.incarnation = 0
        self.tasks: dict[str, Task] = {}
        """What the agent's journal has: tasks that are not seen to have ended, in the order of their launch orders."""
        self._processes: dict[str, Processes] = {}
        self._agenda, self._options, self._gangs = agenda, options, gangs
        self._link = Link(server.node_id, agenda, say)
        self._unhealthy: list[int] = []
        self._news: dict[str, None] = {}
        """Keys of tasks that have changed, or their processes, since the agent looked at them."""
        self._fetching: dict[str, float] = {}
        """{task key: when the agent first asked for the state that the task is to take over}; ends with the agent."""
        self._admitting = self._new_admitting()
        self._up = self._frozen = self._full = self._leaving = self._left = False
        self._called_lost = 0
        """The last incarnation that was called lost; 0: none was."""
        self._journal_lost = False
        self._back_already = False
        """The node is to join again as soon as it has left, or has room."""
        self._beats_since_s: float | None = None
        """From when on the log has acknowledged its heartbeats; None: it does not."""
        self._silence = 0
        """Counts how often it has fallen silent, or was heard again."""
        self.heard_s = 0.0
        """When the last heartbeat was sent that the log has acknowledged."""
        self._lease_over = self._lease_ended = False
        """Its tasks have been stopped, and killed, for want of a lease."""

    @property
    def node_id(self) -> str:
        """Its name."""
        return self.server.node_id

    @property
    def reachable(self) -> bool:
        """Whether it hears orders and is heard."""
        return self._link.open and not self._leaving

    @property
    def heard(self) -> bool:
        """Whether its heartbeats come to the log, and it is not about to leave."""
        return self._up and not self._frozen and self._link.connected and not self._leaving

    @property
    def serves(self) -> bool:
        """Whether its agent can be asked for states over the network."""
        return self._link.open

    def join(self) -> None:
        """The agent comes up (again): it delivers what it had journalled, names its tasks, and looks after them."""
        if self._leaving or self._full:
            self._back_already = True
            return
        link = self._link
        self.incarnation += 1
        self._up, self._frozen, self._left, link.agent_up = True, False, False, True
        lost = self._rebuild_journal() if self._journal_lost else []
        link.reconnect()
        self._is_heard_again()
        tasks = [TaskRef(job_id=task.order.job_id, attempt=task.order.attempt) for task in self.tasks.values()]
        link.tell(self.server.joined(self.incarnation, tasks, scales=self._options.scales))
        for index in self._unhealthy:
            link.tell(GpuUnhealthy(node_id=self.node_id, index=index, note="simulated"))
        for fact in lost:
            link.tell(fact)
        link.tell_unseen()
        self._news = dict.fromkeys(self.tasks)
        self._read_orders()

    def catch_up(self) -> None:
        """The log can be reached again: deliver facts and read orders that have piled up."""
        self._link.reconnect()
        self._is_heard_again()
        self._read_orders()

    def cut_off(self) -> None:
        """The log cannot be reached from now on; tasks go on, and the agent writes its journal."""
        self._link.connected = False
        self._falls_silent()

    def agent_dies(self) -> None:
        """The tasks go on without an agent that looks after them."""
        self._up = self._link.agent_up = False
        self._fetching.clear()
        self._admitting = self._new_admitting()
        self._falls_silent()

    def freeze(self) -> None:
        """The agent stands still from now on; its tasks go on."""
        self._frozen, self._link.agent_up = True, False
        self._falls_silent()

    def thaw(self) -> None:
        """The agent goes on where it was."""
        self._frozen = False
        self._is_heard_again()
        self._works_again()

    def fill_disk(self) -> None:
        """The agent can journal nothing from now on; its heart beats."""
        self._full, self._link.agent_up = True, False

    def free_disk(self) -> None:
        """There is room for the journal again."""
        self._full = False
        if self._back_already and not self._leaving:
            self._back_already = False
            self.join()
        else:
            self._works_again()

    def lose_journal(self) -> None:
        """The agent dies, and its journal is gone when it is back."""
        self._journal_lost = True
        self.agent_dies()

    def set_delivery(self, delay_s: float = 0.0, *, repeats: bool = False) -> None:
        """Facts come to the log `delay_s` late from now on, or twice."""
        self._link.delay_s, self._link.repeats = delay_s, repeats

    def set_clock(self, offset_s: float = 0.0, drift_ratio: float = 0.0) -> None:
        """The node's clock is ahead of the log by so much from now on, and fast by that part of the time."""
        self._link.clock.jump(offset_s, drift_ratio)

    def crash(self) -> None:
        """The node dies, its tasks with it; the agent finds out when it is back."""
        self.agent_dies()
        for key, processes in list(self._processes.items()):
            if processes.seen.pid is None:
                # Their shim has left no record yet: to the next agent they have not been launched.
                del self._processes[key]
                processes.vanish()
            else:
                processes.end(Ended(exit_code=None, signal=SIGKILL, outcome="lost"))

    def leave(self) -> None:
        """The agent shuts down in order: its tasks are ended, and it says good-bye."""
        self._leaving = True
        self._link.tell(NodeLeaving(node_id=self.node_id, incarnation=self.incarnation, note="simulated"))
        stop_all(self.tasks)
        self._news = dict.fromkeys(self.tasks)
        self._look()
        if self._leaving:
            self._agenda.at(self._agenda.now_s + LEAVING_PATIENCE_S, self._has_left, self.incarnation, awaited=False)

    def set_health(self, index: int, healthy: bool) -> None:
        """A GPU fails or recovers."""
        if healthy:
            self._unhealthy.remove(index)
            self._link.tell(GpuRecovered(node_id=self.node_id, index=index))
        else:
            self._unhealthy.append(index)
            self._link.tell(GpuUnhealthy(node_id=self.node_id, index=index, note="simulated"))

    def carry_out(self, order: Event) -> None:
        """Take one order, or keep it until orders are read again."""
        if self.reachable:
            self._take(order)
            self._look()
        else:
            self._link.keep(order)

    def answer(self, key: Key) -> Answer:
        """What the node says that is asked for the state of a task."""
        return answer(self.tasks.get(task_key(*key)))

    def report(self, key: Key, step: float, values: dict[str, float]) -> None:
        """A task's script says how good it is."""
        processes, task = self._processes.get(task_key(*key)), self.tasks.get(task_key(*key))
        if processes is None or task is None:
            return
        waited = processes.seen.report is not None
        processes.report(step, values)
        if processes.seen.report is not None and not waited and task.reported_at_s is not None:
            self._plan_look(task, next_report_s(task.reported_at_s, task.started_s))

    def fail(self, key: Key, doom: Doom) -> None:
        """The task ends badly by itself."""
        outcome = "signalled" if doom.signal else "exited"
        ended = Ended(exit_code=doom.exit_code, signal=doom.signal, outcome=outcome, stderr_tail=doom.stderr_tail)
        self._end(key, ended)

    def finish(self, key: Key) -> None:
        """The task has done its work."""
        self._end(key, Ended(exit_code=0, signal=None, outcome="exited"))

    def _works_again(self) -> None:
        """The agent, if there is one and it does not stand still, sees what has happened meanwhile."""
        if not self._up or self._frozen or self._full:
            return
        self._link.agent_up = True
        self._link.tell_unseen()
        if self.reachable:
            self._read_orders()
        else:
            self._look()

    def _rebuild_journal(self) -> list[Event]:
        """Know the tasks that have folders, as they were ordered and reported. Returns the ends of all others."""
        self._journal_lost = False
        orders = [task.order for key, task in self.tasks.items() if key not in self._processes]
        self.tasks = {key: _as_reported(task) for key, task in self.tasks.items() if key in self._processes}
        for order in self._link.orders():
            if isinstance(order, LaunchTask):
                orders.append(order)
            elif isinstance(order, CheckGpus):
                self._link.keep(order)
            elif isinstance(order, Order):
                apply_order(self.tasks, order)
        return [
            JobExited(
                job_id=order.job_id,
                attempt=order.attempt,
                node_id=self.node_id,
                exit_code=None,
                signal=None,
                outcome="lost",
                stderr_tail="simulated: the journal was lost before this task was started",
            )
            for order in orders
        ]

    # The node's lease: renewed by each heartbeat that the log acknowledges, heeded by the shims.

    def _is_heard_again(self) -> None:
        """The log acknowledges heartbeats: the lease is renewed."""
        if self._beats_since_s is not None or not self._up or self._frozen or not self._link.connected:
            return
        self._beats_since_s, self._silence = self._agenda.now_s, self._silence + 1
        lease = self._options.lease
        if lease is None or not lease.fenced:
            return
        if lease.is_renewed_after(self._agenda.now_s - self.heard_s):
            self._renew_lease()
        else:
            self._lease_over = True
            self._agenda.at(self._agenda.now_s + PROOF_LOOK_S, self._if_silent, self._silence, self._prove)

    def _prove(self) -> None:
        """Renew the lease when placement has read that the node is there again, and the agent what follows from it."""
        if self._link.under_way or not self._link.agent_up or not self._gangs.is_answered():
            again, action = self._agenda.now_s + PROOF_LOOK_S, self._prove
        else:
            # Behind the orders that are on their way already.
            again, action = self._agenda.now_s, self._renew_lease
        self._agenda.at(again, self._if_silent, self._silence, action)

    def _renew_lease(self) -> None:
        if self._lease_over:
            self._agenda.after(0.0, self._look)
        self._lease_over = self._lease_ended = False
        for processes in list(self._processes.values()):
            processes.release()

    def _falls_silent(self) -> None:
        """No further heartbeat is acknowledged."""
        lease = self._options.lease
        if self._beats_since_s is None:
            return
        since_s, self._beats_since_s, self._silence = self._beats_since_s, None, self._silence + 1
        if lease is None:
            return
        heard_s = self._agenda.now_s - (self._agenda.now_s - since_s) % lease.heartbeat_s
        if not self._lease_over:
            self.heard_s = heard_s
        plan = [(heard_s + lease.lost_after_s, self._is_lost)]
        if lease.fenced:
            plan += [
                (self.heard_s + lease.stops_after_s, self._stop_tasks),
                (self.heard_s + lease.kills_after_s, self._kill_tasks),
            ]
        for due_s, action in plan:
            self._agenda.at(due_s, self._if_silent, self._silence, action, awaited=False)

    def _if_silent(self, silence: int, action: Callable[[], None]) -> None:
        """Do it unless the node has been heard of, or fallen silent, since."""
        if silence == self._silence:
            action()

    def _stop_tasks(self) -> None:
        self._lease_over = True
        for processes in list(self._processes.values()):
            processes.fence()

    def _kill_tasks(self) -> None:
        self._lease_ended = True
        for processes in list(self._processes.values()):
            processes.end(_WITHOUT_LEASE)

    def _is_lost(self) -> None:
        assert self._options.lease is not None
        if self._left or self._called_lost == self.incarnation:
            return  # as it has said, or as it stands already until it joins anew
        self._called_lost = self.incarnation
        silent_s = self._options.lease.lost_after_s
        self._find_lost(NodeLost(node_id=self.node_id, silent_s=silent_s, incarnation=self.incarnation))

    def _end(self, key: Key, ended: Ended) -> None:
        processes = self._processes.get(task_key(*key))
        if processes is not None:
            processes.end(ended)

    def _read_orders(self) -> None:
        """All that have piled up are one batch, as those that an agent reads at once."""
        for order in self._link.orders():
            self._take(order)
        self._look()

    def _take(self, order: Event) -> None:
        if isinstance(order, CheckGpus):
            if self._options.self_test_s:
                self._agenda.after(self._options.self_test_s, self._tested, order.gpu_indices, self.incarnation)
            else:
                self._tested(order.gpu_indices, self.incarnation)
        if isinstance(order, Order):
            task = apply_order(self.tasks, order)
            if task is not None:
                self._news[task.key] = None

    def _tested(self, indices: list[int], incarnation: int) -> None:
        """GPUs were tried out; an agent that has started since was asked again."""
        if incarnation == self.incarnation:
            failed = [index for index in indices if index in self._unhealthy]
            took_s = self._options.self_test_s
            self._link.tell(NodeTested(node_id=self.node_id, gpu_indices=indices, failed=failed, took_s=took_s))

    def _look_at(self, key: str) -> None:
        """There is something new of a task, or its time has come."""
        self._news[key] = None
        self._look()

    def _look(self) -> None:
        """Look at the tasks until none comes further: others may have waited for each step."""
        while self._link.agent_up:
            self._admit()
            if not self._round():
                break
        if self._leaving and not self.tasks:
            self._has_left(self.incarnation)

    def _new_admitting(self) -> Admitting | None:
        """None: nothing keeps the jobs on a GPU from each other, or none comes to one that is in use."""
        return Admitting(self.server, self._processes) if self._options.beside is Beside.ANTMAN else None

    def _admit(self) -> None:
        """Let coordination look at the GPUs that tasks share; what stands still for want of a lease answers nothing."""
        if self._admitting is None or self._lease_over:
            return
        before_s = self._admitting.next_s
        for task in self._admitting.look(self.tasks, self._agenda.now_s):
            self._news[task.key] = None
        due_s = self._admitting.next_s
        if due_s is not None and due_s != before_s:
            self._agenda.at(_not_before(due_s), self._look, awaited=False)

    def allowance(self, key: Key) -> Told | None:
        """What a task's processes were told last that they may have of their GPUs; None: there are none."""
        processes = self._processes.get(task_key(*key))
        return processes.told if processes is not None else None

    def _wait(self, task: Task) -> Wait | None:
        active = list(self.tasks.values())
        return self._admitting.wait(task, active) if self._admitting is not None else taken(task, active)

    def _round(self) -> bool:
        """One look at each task that it can change. Returns whether one of them has come further."""
        news, self._news = self._news, {}
        for key, task in list(self.tasks.items()):
            if key not in news and not task.waits_for_gpus:
                continue
            before = task.status
            step = advance(task, self._seen(key, task), self._agenda.now_s)
            for action in step.actions:
                self._act(action, key, task)
            for fact in step.facts:
                self._link.tell(fact)
            if task.status is not before:
                self._news[key] = None
                if task.status is Status.EXITED:
                    self._forget(key)
                elif task.status is Status.WARMING and not self._processes[key].seen.takeover.ready:
                    self._look_again(task)
        return bool(self._news)

    def _seen(self, key: str, task: Task) -> Seen:
        processes = self._processes.get(key)
        if processes is None:
            return Seen(wait=self._wait(task))
        seen = processes.seen
        if task.status is Status.SUSPENDED and task.waits_for_gpus:
            # A task that has been launched has its GPUs until it stands still.
            seen = replace(seen, wait=self._wait(task))
        if seen.report is not None:
            if report_due(task, ended=seen.ended is not None, now_s=self._agenda.now_s):
                processes.take_report()
            else:
                seen = replace(seen, report=None)
        return seen

    def _act(self, action: Action, key: str, task: Task) -> None:
        if action is Action.LAUNCH:
            self._launch(key, task)
            return
        processes = self._processes[key]
        match action:
            case Action.ASK:
                processes.stand_still()
            case Action.FREEZE:
                processes.freeze()
            case Action.THAW:
                processes.go_on(task.gpu_indices)
            case Action.TERMINATE | Action.END_STILL:
                processes.terminate()
            case Action.KILL:
                processes.kill()
            case Action.FETCH:
                self._fetch(key, task)
            case Action.TAKE_OFF | Action.BRING_BACK:
                raise AssertionError(f"{action.value}: simulated processes have no driver")
        self._look_again(task, before_s=processes.answer_s)

    def _launch(self, key: str, task: Task) -> None:
        told = self._admitting.begins_with(task) if self._admitting is not None else Told()
        processes = Processes(task.order, told, self._agenda, self._options, self._gangs, self._look_at)
        self._processes[key] = processes
        if self._lease_over:
            processes.fence()
        if self._lease_ended:
            self._agenda.after(0.0, processes.end, _WITHOUT_LEASE)

    def _look_again(self, task: Task, before_s: float = math.inf) -> None:
        """When the patience with the task ends, if that is before its processes do what they were told."""
        due_s = next_look_s(task)
        if due_s is not None and self._agenda.now_s < due_s < before_s:
            self._plan_look(task, due_s)

    def _plan_look(self, task: Task, due_s: float) -> None:
        """Not before `due_s`, and not awaited: what the look is for is."""
        self._agenda.at(_not_before(due_s), self._look_at, task.key, awaited=False)

    def _fetch(self, key: str, task: Task) -> None:
        if key not in self._fetching and not self._processes[key].loading:
            self._fetching[key] = self._agenda.now_s
            self._agenda.after(0.0, self._ask, key, task, self._agenda.now_s)

    def _ask(self, key: str, task: Task, began_s: float) -> None:
        """Ask the source for the state that the task is to take over, unless the task or the agent has ended."""
        order = task.restore
        if self._fetching.get(key) != began_s or order is None:
            return
        processes = self._processes[key]
        said = self._gangs.ask(task.order, order)
        if said is Answer.HERE:
            self._gangs.take_over(processes.key, self.node_id, order)
            processes.load()
        elif said is Answer.LATER and asks_again(began_s, self._agenda.now_s):
            self._agenda.after(FETCH_RETRY_S, self._ask, key, task, began_s)
        else:
            processes.cannot_load(f"simulated: attempt {order.from_attempt} of {order.job_id} {said}")

    def _forget(self, key: str) -> None:
        """The task has ended."""
        del self.tasks[key]
        self._processes.pop(key, None)
        self._fetching.pop(key, None)

    def _has_left(self, incarnation: int) -> None:
        """Its tasks have ended, or it has waited for that long enough; an agent that has died says nothing."""
        if not self._leaving or incarnation != self.incarnation:
            return
        self._leaving, self._left = False, True
        if self._up:
            self._link.tell(NodeLeft(node_id=self.node_id, incarnation=self.incarnation, note="simulated"))
        self.agent_dies()
        if self._back_already:
            self._back_already = False
            self.join()


def _as_reported(task: Task) -> Task:
    """The task as orders and reports on the log have it: what is under way is begun anew."""
    return replace(task, asked_since_s=None, stopping_since_s=None, yielding=False, reported_at_s=None)


def _not_before(due_s: float) -> float:
    """The first whole microsecond at which a moment has come."""
    moment_s = whole_microseconds(due_s)
    return moment_s if moment_s >= due_s else due_s + 1e-6
