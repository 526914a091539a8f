"""The simulated world behind the orders: nodes, and the gangs that run on them."""

from __future__ import annotations

import math
from collections.abc import Callable

from libs.contracts.base import Event
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import LaunchTask, RestoreTask, Role, SetClass
from libs.node.fetching import Answer, source_of
from libs.sim.agenda import Agenda
from libs.sim.clusters import Cluster
from libs.sim.dooms import Dooms
from libs.sim.facts import Facts
from libs.sim.faults import Faults
from libs.sim.hanging import Hanging
from libs.sim.nodes import Node
from libs.sim.options import Doom, Options, TakeoverFailure
from libs.sim.places import Places
from libs.sim.processes import Key
from libs.sim.progress import Progress
from libs.sim.sampling import Samples
from libs.sim.sharing.gpus import Gpu, Present, SharedGpus
from libs.sim.throughputs import Throughputs
from libs.sim.witness import Witness
from libs.sim.work import Attempt, Job

MOMENT_S = 1e-6
"""Work that is taken to be done where a phase ends, so that no phase ends twice."""


class World:
    """Everything outside of the services, on one agenda."""

    def __init__(self, cluster: Cluster, agenda: Agenda, options: Options, throughputs: Throughputs, seed: int) -> None:
        self._agenda, self._options, self._throughputs, self._seed = agenda, options, throughputs, seed
        self.facts = Facts(agenda)
        say, find_lost = self.facts.say, self.facts.find_lost
        self.nodes = {server.node_id: Node(server, agenda, options, self, say, find_lost) for server in cluster.servers}
        self.jobs: dict[str, Job] = {}
        self._witness = Witness(keep=options.keep_log)
        self.is_answered: Callable[[], bool] = lambda: True
        """Whether placement has read all that nodes have reported up to now."""
        self._places = Places()
        widths: dict[str, int] = {}
        for server in cluster.servers:
            widths[server.gpu_type] = max(server.gpus, widths.get(server.gpu_type, 1))
        self._gpus_per_server = widths
        self._dooms = Dooms(options, seed, self.jobs)
        self._faults = Faults(agenda, options, seed, self.nodes, self.facts)
        self._hanging = Hanging(agenda, self.facts)
        self._progress = Progress(agenda, options, seed, self.nodes, self.facts, self._places.neighbours)
        self._samples = Samples(agenda, self.facts.find)
        self.shared: SharedGpus | None = None
        """Where it is known what jobs ask of GPUs."""
        if options.models is not None:
            self.shared = SharedGpus(agenda, options.beside, self._gpu_feels, self._gpu_seen)

    def begin(self) -> None:
        """All nodes join; what will befall them is planned."""
        for node in self.nodes.values():
            self._agenda.at(0.0, node.join)
            self._faults.plan_crash(node, 0)
        self._faults.plan()

    def arrived(self, event: JobArrived) -> None:
        """A job has been submitted: its work is known from now on."""
        curve = self._options.surface(event.spec)
        self.jobs[event.job_id] = Job(event.job_id, event.spec, self._throughputs, curve)

    def order(self, event: Event) -> None:
        """An order for a node is on the log."""
        node = self.nodes.get(event.subject)
        if node is not None:
            self._agenda.after(0.0, node.carry_out, event)
            if isinstance(event, SetClass):
                self._agenda.after(0.0, self._set_role, event)

    def witness(self) -> Witness:
        """The tasks' own record of what they have done up to now; to be asked for at the end of a run."""
        for attempt in self._places.all():
            attempt.testify(self._agenda.now_s)
        return self._witness

    # What nodes report about gangs (the `Gangs` protocol).

    def launched(self, order: LaunchTask) -> None:
        key = (order.job_id, order.attempt)
        attempt = self._places.get(key) or self._begun(key, order)
        self._places.launch(key, attempt, [(order.node_id, index) for index in order.gpu_indices])

    def _begun(self, key: Key, order: LaunchTask) -> Attempt:
        job = self.jobs[order.job_id]
        attempt = Attempt(job, order.attempt, order.node_count, order.role, order.trial_steps, self._witness)
        gpu_type = self.nodes[order.node_id].server.gpu_type
        fewest = -(-order.world_size // self._gpus_per_server[gpu_type])
        attempt.rate_alone = attempt.job.rate(gpu_type, order.node_count <= fewest, order.world_size)
        if attempt.trial:
            attempt.rate_alone = attempt.job.trial_rate(gpu_type)
        attempt.rate_alone *= self._options.failures.speed(self._seed, *key)
        attempt.rate, attempt.gpu_type = attempt.rate_alone, gpu_type
        self._dooms.plan(key, attempt)
        return attempt

    def withdrawn(self, key: Key, node_id: str) -> None:
        self._places.withdraw(key, node_id)

    def may_go_on(self, key: Key) -> bool:
        return self.jobs[key[0]].done > 0

    def started(self, key: Key, node_id: str) -> None:
        self._set_running(key, node_id, True)

    def suspended(self, key: Key, node_id: str) -> None:
        self._set_running(key, node_id, False)

    def fenced(self, key: Key, node_id: str, fenced: bool) -> None:
        attempt = self._places.get(key)
        if attempt is None:
            return
        attempt.halt(self._agenda.now_s)
        if fenced:
            attempt.fenced[node_id] = None
        else:
            attempt.fenced.pop(node_id, None)
        if attempt.complete:
            self._go(key, attempt)
        self._neighbours_feel(attempt)

    def resumed(self, key: Key, node_id: str, gpu_indices: list[int]) -> None:
        self._places.move(key, node_id, gpu_indices)
        self._set_running(key, node_id, True)

    def ask(self, launch: LaunchTask, order: RestoreTask) -> Answer:
        here, said = self.nodes[launch.node_id], set()
        ranks = len(launch.gpu_indices) if launch.launcher == "ranks" else 1
        for rank in range(launch.first_rank, launch.first_rank + ranks):
            source = self.nodes[source_of(order, rank)[0].node_id]
            reached = source is here or (source.serves and here.serves)
            said.add(source.answer((order.job_id, order.from_attempt)) if reached else Answer.LATER)
        return next(each for each in (Answer.NEVER, Answer.LATER, Answer.HERE) if each in said)

    def takeover_failure(self, key: Key, node_id: str) -> TakeoverFailure | None:
        return self._options.failures.takeover(self._seed, *key, node_id)

    def take_over(self, key: Key, node_id: str, order: RestoreTask) -> None:
        attempt, source = self._places.get(key), self._places.get((order.job_id, order.from_attempt))
        if attempt is not None and source is not None:
            attempt.done = source.done
            self._dooms.plan(key, attempt)
            attempt.nodes[node_id] = False

    def stopping(self, key: Key) -> None:
        attempt = self._places.get(key)
        if attempt is not None:
            attempt.halt(self._agenda.now_s)
            attempt.leave_checkpoint()
            attempt.broken = True
            self._neighbours_feel(attempt)

    def ended(self, key: Key, node_id: str) -> int:
        attempt = self._places.get(key)
        if attempt is None:
            return 0
        attempt.halt(self._agenda.now_s)
        attempt.broken = True
        self._neighbours_feel(attempt)
        attempt.nodes.pop(node_id, None)
        attempt.fenced.pop(node_id, None)
        if not attempt.nodes:
            self._places.leave(key, attempt)
        return attempt.steps

    def _set_role(self, order: SetClass) -> None:
        """The gang owns its GPUs from now on, or is a guest there: it and its neighbours are faster or slower."""
        key = (order.job_id, order.attempt)
        attempt = self._places.get(key)
        if attempt is None or attempt.role == order.role:
            return
        attempt.role = order.role
        if attempt.going:
            attempt.halt(self._agenda.now_s)
            self._go(key, attempt)
            self._neighbours_feel(attempt)

    def _set_running(self, key: Key, node_id: str, running: bool) -> None:
        attempt = self._places.get(key)
        if attempt is None:
            return
        attempt.halt(self._agenda.now_s)
        attempt.nodes[node_id] = running
        if attempt.complete:
            self._go(key, attempt)
        self._neighbours_feel(attempt)

    def _neighbours_feel(self, attempt: Attempt) -> None:
        """It has begun or ceased to use its GPUs: jobs that share them are slower or faster from now on."""
        self._look_at(attempt)
        for other in self._places.neighbours(attempt):
            other.halt(self._agenda.now_s)
            self._go((other.job.job_id, other.attempt), other)

    def _go(self, key: Key, attempt: Attempt) -> None:
        """The gang is complete: plan how this ends, unless something happens first."""
        if attempt.rate_alone <= 0:
            self._agenda.after(0.0, self._refuse, key, attempt, attempt.turn)
            return
        if self._fails_for_memory(key, attempt):
            return
        attempt.rate = attempt.rate_alone * self._ratio(key, attempt)
        left_s = attempt.go(self._agenda.now_s)
        if left_s < math.inf:
            # Not awaited: the job is, and when it moves on before, this end is not waited for.
            self._agenda.at(self._agenda.now_s + left_s, self._end, key, attempt, attempt.turn, awaited=False)
        self._progress.plan(key, attempt)
        self._plan_phase(key, attempt)

    def _ratio(self, key: Key, attempt: Attempt) -> float:
        """What is left of its speed while it shares its GPUs."""
        if self.shared is not None:
            return min(self.shared.speed(gpu, key) for gpu in attempt.gpus)
        # An owner is as fast as alone beside guests: these have what is left.
        is_guest = attempt.role == Role.GUEST
        sharing = [other for other in self._places.neighbours(attempt) if is_guest or other.role == Role.OWNER]
        others = [other.job for other in sharing]
        return attempt.job.packed_ratio(others, attempt.gpu_type, self._throughputs)

    # Where it is known what jobs ask of GPUs.

    def _look_at(self, attempt: Attempt) -> None:
        """See anew which jobs make progress on its GPUs, and what these ask for now."""
        if self.shared is None:
            return
        for gpu in attempt.gpus:
            present = [self._present(other) for other in self._places.on(gpu) if other.makes_progress]
            self.shared.look(gpu, self.nodes[gpu[0]].server.memory_bytes, present)

    def _present(self, attempt: Attempt) -> Present:
        assert self._options.models is not None
        model = self._options.models.of(attempt.job.model)
        demand, _ = model.at(attempt.alone_s(self._agenda.now_s) + MOMENT_S)
        return Present((attempt.job.job_id, attempt.attempt), attempt.role == Role.GUEST, demand)

    def _fails_for_memory(self, key: Key, attempt: Attempt) -> bool:
        """It has come to GPUs, or to a phase, where it does not get the memory that it cannot do without."""
        self._look_at(attempt)
        if self.shared is None:
            return False
        lacking = max(self.shared.lacks_memory(gpu, key) for gpu in attempt.gpus)
        if lacking:
            self._agenda.after(0.0, self._run_out_of_memory, key, attempt, attempt.turn, lacking)
        return lacking > 0

    def _run_out_of_memory(self, key: Key, attempt: Attempt, turn: int, lacking: int) -> None:
        if attempt.turn == turn and attempt.nodes:
            message = f"simulated: CUDA out of memory: {lacking} bytes more than the GPU has left"
            doom = Doom(at_ratio=0.0, exit_code=1, signal=None, stderr_tail=message)
            self.nodes[next(iter(attempt.nodes))].fail(key, doom)

    def _plan_phase(self, key: Key, attempt: Attempt) -> None:
        """What it asks for changes when so much of its work is done."""
        if self._options.models is None or attempt.rate <= 0:
            return
        alone_s = attempt.alone_s(self._agenda.now_s)
        _, ends_at_s = self._options.models.of(attempt.job.model).at(alone_s + MOMENT_S)
        if ends_at_s < math.inf:
            due_s = self._agenda.now_s + (ends_at_s - alone_s) * attempt.rate_alone / attempt.rate
            # Not awaited, as its end.
            self._agenda.at(due_s, self._change_phase, key, attempt, attempt.turn, awaited=False)

    def _change_phase(self, key: Key, attempt: Attempt, turn: int) -> None:
        if attempt.turn == turn:
            attempt.halt(self._agenda.now_s)
            self._go(key, attempt)
            self._neighbours_feel(attempt)

    def _gpu_feels(self, gpu: Gpu) -> None:
        """Speeds there are others from now on."""
        for other in [each for each in self._places.on(gpu) if each.going]:
            other.halt(self._agenda.now_s)
            self._go((other.job.job_id, other.attempt), other)

    def _gpu_seen(self, gpu: Gpu) -> None:
        """The GPU is used differently from now on."""
        assert self.shared is not None
        self._samples.changed(gpu, self.shared)

    def _refuse(self, key: Key, attempt: Attempt, turn: int) -> None:
        """The throughput table says that the job cannot run here: it ends badly at once."""
        if attempt.turn == turn and attempt.nodes:
            node = self.nodes[next(iter(attempt.nodes))]
            message = f"simulated: no rate for this job on {node.server.gpu_type}"
            node.fail(key, Doom(at_ratio=0.0, exit_code=1, signal=None, stderr_tail=message))

    def _end(self, key: Key, attempt: Attempt, turn: int) -> None:
        """The work is done, or fails as it was doomed to, on the node that started last."""
        if attempt.turn != turn:
            return
        attempt.halt(self._agenda.now_s)
        if attempt.hangs:
            self._neighbours_feel(attempt)
            self._hanging.watch(key, attempt)
            return
        if attempt.doomed_at is not None:
            doom = self._dooms.of(key)
            assert doom is not None
            attempt.job.has_failed()
            self.nodes[next(reversed(attempt.nodes))].fail(key, doom)
            return
        ending = self._options.endings.get(key[0])
        if ending is not None and ending.is_killed and not attempt.trial:
            self.facts.kill(key[0])
            return
        for node_id in list(attempt.nodes):
            self.nodes[node_id].finish(key)
