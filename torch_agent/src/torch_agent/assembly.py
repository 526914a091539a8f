"""One agent's parts, put together, and what it says of itself as a whole: that it has joined, leaves, has left."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from libs.bus.port import Bus, Refused
from libs.contracts.agent import NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.base import Event
from libs.contracts.cluster import TaskRef
from libs.contracts.placement import CheckGpus
from libs.coordination.settings import Settings
from libs.node.task import LEAVING_PATIENCE_S, Order
from torch_agent import VERSION
from torch_agent.bounds import LOOK_S as BOUNDS_LOOK_S
from torch_agent.bounds import Bounds
from torch_agent.cgroups import Groups, NoCgroups
from torch_agent.cgroups import found as found_groups
from torch_agent.complaints import Complaints
from torch_agent.coordinating.coordinator import Coordinator
from torch_agent.driver.interface import Driver
from torch_agent.gpu_tests import GpuTests
from torch_agent.journal import Journal, reserve
from torch_agent.launching import Launcher
from torch_agent.leasing import Leasing
from torch_agent.options import Options
from torch_agent.ordering import orders_partition
from torch_agent.probes.gpus import GpuFacts
from torch_agent.probes.scaling import Scaling
from torch_agent.processes import Looks
from torch_agent.publishing import Publisher
from torch_agent.reaching import CONTROL, lasting, placement_position, use_present_token
from torch_agent.room import LOOK_S as ROOM_LOOK_S
from torch_agent.room import Room
from torch_agent.sharing import LOOK_S as SHARING_LOOK_S
from torch_agent.sharing import Sharing
from torch_agent.supervision import Supervision
from torch_agent.telemetry import Telemetry

log = logging.getLogger("torch_agent")

PROOF_LOOK_S = 0.25
"""How often it is looked how far placement has come, while this node's lease waits for that."""


@dataclass(frozen=True)
class Ports:
    """Where the agent is asked for what lies on its node."""

    states: int
    """Other agents: states of tasks that move."""
    files: int
    """The gateway: files of jobs; 0: none are served."""


class Agent:
    """The parts of one agent, from its start to its end."""

    def __init__(
        self,
        options: Options,
        gpus: GpuFacts,
        journal: Journal,
        publisher: Publisher,
        scales: Scaling,
        bus: Bus,
        leasing: Leasing,
    ) -> None:
        """Take over the tasks that the journal knows; nothing is done with them before `join`.

        Args:
            publisher: brings to the log what the journal has for it.
            scales: how memory of tasks is limited on this node.
            leasing: of this node's lease.
        """
        self._options, self._gpus, self._journal, self._publisher = options, gpus, journal, publisher
        self._scales, self._ports = scales, Ports(states=0, files=0)
        self.incarnation = journal.begin_incarnation()
        self._leasing, self._bus = leasing, bus
        publisher.on_refused = self._is_refused
        inventory = gpus.inventory()
        self._looks = Looks()
        self._bounds = Bounds(options.cpus, options.gpu_cpus, self._looks)
        self._groups = _groups(options)
        self._sharing = Sharing(options.state_dir / "gpus", [gpu.index for gpu in inventory], virtual=gpus.virtual)
        self._launcher = Launcher(options, inventory, self._bounds.begins, self._sharing.begins, scales, self._groups)
        self._launcher.leasing = leasing
        self._coordinator = Coordinator(
            options.node_id,
            inventory,
            self._sharing,
            options.state_dir / "coordination",
            virtual=gpus.virtual,
            scales=bool(scales.memory),
            settings=Settings(peak_s=options.peak_s, interference_target=options.interference_target),
            leased=leasing.until_it_holds,
        )
        self._room = Room(options.state_dir, journal.settle, self._has_room_again)
        self._launcher.ran_out = self._room.run_out
        self._room.look()
        self.supervision = Supervision(
            options.state_dir,
            journal,
            self._launcher,
            publisher.wake,
            self._sharing,
            self._coordinator.admission,
            _driver(options),
            lambda: leasing.holds,
            self._room,
        )
        self._refusal = ""
        """What was said last of the agent's token; empty: it is taken."""
        if self._groups is not None:
            self._groups.sweep(frozenset(task.key for task in self.supervision.active()))
        self._gpu_tests = GpuTests(options.node_id, gpus, self._report)

    def join(self, ports: Ports) -> None:
        """Say that the node is there, with the tasks that it has, and look at them for the first time."""
        self._ports = ports
        self._report(self._joined(self.incarnation))
        self.supervision.adopt()

    def take(self, orders: list[Order | CheckGpus], position: int) -> None:
        """Take orders, and the position behind them on the log."""
        self.supervision.take([order for order in orders if not isinstance(order, CheckGpus)], position)
        self._gpu_tests.take([order for order in orders if isinstance(order, CheckGpus)])
        self._coordinator.wake()

    def workers(self, complaints: Complaints, heartbeat_s: float) -> list[asyncio.Task[None]]:
        """Begin with all that the agent does for ever, beside following orders; to be cancelled.

        Args:
            complaints: the errors that the agent has logged.
            heartbeat_s: seconds between two heartbeats.
        """
        supervision, launcher = self.supervision, self._launcher
        works: list[Coroutine[Any, Any, None]] = [
            supervision.run(),
            self._look_for_room(),
            self._publisher.run(),
            self._telemetry(complaints).run(heartbeat_s),
            self._leasing.run(self._prove),
            supervision.show(self._bounds.look, BOUNDS_LOOK_S),
            supervision.show(self._sharing.look, SHARING_LOOK_S),
            self._coordinator.run(supervision),
            self._gpu_tests.run(),
            launcher.outputs.run(supervision.active_jobs, time.time),
            launcher.setups.run(supervision.active_setups, time.time),
        ]
        return [asyncio.create_task(work) for work in works]

    def _has_room_again(self) -> None:
        reserve(self._journal, self._options.state_dir)
        self._publisher.wake()
        self.supervision.wake()

    async def _look_for_room(self) -> None:
        while True:
            self._room.look()
            await asyncio.sleep(ROOM_LOOK_S)

    async def leave(self) -> None:
        """End in order, while the workers still work: with the tasks, where they are to be queued again."""
        options, supervision = self._options, self.supervision
        if not options.requeue_on_exit:
            self._leasing.keep()
            log.info("%d tasks go on; the next start on %s adopts them", len(supervision.active()), options.state_dir)
            return
        note = "stopped in order"
        supervision.stop_all(NodeLeaving(node_id=options.node_id, incarnation=self.incarnation, note=note))
        await supervision.until_idle(LEAVING_PATIENCE_S)
        self._report(NodeLeft(node_id=options.node_id, incarnation=self.incarnation, note=note))

    async def publish_rest(self) -> None:
        """Bring all to the log that the journal still has for it."""
        while self._journal.backlog:
            await self._publisher.publish()

    def close(self) -> None:
        """Leave nothing on the machine that no task needs."""
        if self._groups is not None:
            self._groups.remove()

    def _report(self, event: Event) -> None:
        self._journal.record(facts=[event], time_s=time.time())
        self._publisher.wake()

    async def _prove(self) -> None:
        """Return when nothing runs here any more that placement did not want when it had heard of this node again."""
        await self._take_all_orders()  # first: what was ordered before the node was lost is announced with the rest
        self.incarnation = self._journal.begin_incarnation()
        self._report(self._joined(self.incarnation))
        while self._journal.is_full:  # what is kept in memory has no number yet
            await asyncio.sleep(PROOF_LOOK_S)
        own = self._journal.last_number
        while (first := self._journal.unpublished(1)) and first[0].number <= own:
            await asyncio.sleep(PROOF_LOOK_S)
        end = await lasting(lambda: self._bus.end_offset(CONTROL))
        while await lasting(lambda: placement_position(self._bus)) < end:
            await asyncio.sleep(PROOF_LOOK_S)
        await self._take_all_orders()
        self.supervision.look()

    async def _take_all_orders(self) -> None:
        """Return when the agent has taken all orders that are on the log now."""
        orders = await lasting(lambda: orders_partition(self._bus, self._options.node_id))
        end = await lasting(lambda: self._bus.end_offset(orders))
        while (self._journal.next_order or 0) < end:
            await asyncio.sleep(PROOF_LOOK_S)

    def _is_refused(self, error: Refused) -> None:
        """The token is not taken (any more): say so, and try what its file holds by now."""
        if (said := str(error)) != self._refusal:
            self._refusal = said
            log.error("%s  This agent goes on trying, and its tasks stand still when their lease has run out.", said)
        use_present_token(self._bus, self._options)

    def _telemetry(self, complaints: Complaints) -> Telemetry:
        supervision = self.supervision
        return Telemetry(
            self._bus,
            self._options.node_id,
            lambda: self.incarnation,
            self._gpus,
            active=supervision.active,
            pages_of=lambda task: supervision.folder(task).pages,
            cpu_s=lambda task: supervision.folder(task).cpu_s(self._looks.recent()),
            report=self._report,
            refused=self._is_refused,
            complaints=complaints,
            changes=self._coordinator.changes,
            leasing=self._leasing,
            heard=lambda: not self._publisher.refused,
            shortage=lambda: self._room.shortage,
        )

    def _joined(self, incarnation: int) -> NodeJoined:
        options, gpus, scales, groups = self._options, self._gpus, self._scales, self._groups
        return NodeJoined(
            node_id=options.node_id,
            incarnation=incarnation,
            address=options.address,
            rack=options.rack,
            gpus=gpus.inventory(),
            tasks=[TaskRef(job_id=t.order.job_id, attempt=t.order.attempt) for t in self.supervision.active()],
            rendezvous_ports=options.rendezvous_ports,
            virtual=gpus.virtual,
            remaps=gpus.virtual,
            state_port=self._ports.states,
            files_port=self._ports.files,
            state_dir=str(options.state_dir),
            agent_version=VERSION,
            cpus=len(options.cpus),
            gpu_cpus=list(options.gpu_cpus.values()),
            memory_bytes=options.memory_bytes,
            bounds_by="+".join(["affinity", *(("cgroup", *groups.controllers) if groups is not None else ())]),
            scales_memory=scales.memory,
            scales_compute=True,
            spill_bytes=scales.spill_bytes,
            features=options.features,
            image_runner=options.image_runner,
        )


def _groups(options: Options) -> Groups | None:
    """None where tasks are to have none, or where none can be made and none were asked for by name.

    Raises:
        NoCgroups: none can be made in the group that was named.
    """
    if not options.cgroups:
        return None
    try:
        return found_groups(options.cgroup, options.node_id, options.state_dir)
    except NoCgroups as error:
        if options.cgroup is not None:
            raise
        log.info("tasks are held by the trees of their processes alone: %s", error)
        return None


def _driver(options: Options) -> Driver | None:
    """None where it is not wanted, or not there."""
    driver = Driver.load() if options.driver_checkpoint else None
    if options.driver_checkpoint and driver is None:
        log.warning("this machine has no NVIDIA driver with a checkpoint interface (570 and later): done without")
    return driver
