"""The agent: joins a node to a cell, runs what it is ordered to, and reports what it sees.

python -m torch_agent.service --bus sqlite:///… --node-id n1 --virtual-gpus 4
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import suppress

from libs.bus.port import Bus, BusError, Fenced, Refused, TellsNodeKeys
from libs.contracts.agent import NodeJoined, NodeLeaving, NodeLeft
from libs.contracts.base import Event
from libs.contracts.cluster import TaskRef
from libs.contracts.placement import CheckGpus
from libs.coordination.settings import Settings
from libs.node.serving import SIGNED_FOR_NODE, Proof
from libs.node.task import LEAVING_PATIENCE_S, Order
from libs.runtime.cell_key import KeyUnreadable, read_key
from torch_agent import VERSION
from torch_agent.beginning import OrdersRefused
from torch_agent.bounds import LOOK_S as BOUNDS_LOOK_S
from torch_agent.bounds import Bounds
from torch_agent.complaints import Complaints
from torch_agent.coordinating.coordinator import Coordinator
from torch_agent.driver.interface import Driver
from torch_agent.files.server import FileServer
from torch_agent.gpu_tests import GpuTests
from torch_agent.holding import AnotherAgent, hold
from torch_agent.journal import Journal, JournalRefused
from torch_agent.launching import Launcher
from torch_agent.moving.sending import StateServer
from torch_agent.options import Options, parse
from torch_agent.ordering import follow_orders, orders_partition
from torch_agent.probes import scaling
from torch_agent.probes.gpus import GpuFacts
from torch_agent.probes.nvml import NoNvidiaGpus, NvmlGpus
from torch_agent.probes.scaling import Scaling
from torch_agent.probes.virtual import VirtualGpus, default_memory_bytes
from torch_agent.processes import cpu_s
from torch_agent.publishing import Publisher
from torch_agent.reaching import connected, node_key, reach
from torch_agent.sessions.entering import Entrance
from torch_agent.sharing import LOOK_S as SHARING_LOOK_S
from torch_agent.sharing import Sharing
from torch_agent.supervision import Supervision
from torch_agent.telemetry import Telemetry

log = logging.getLogger("torch_agent")

PUBLISH_TIMEOUT_S = 5.0
EXIT_FENCED, EXIT_REFUSED, EXIT_USAGE = 75, 78, 2


async def serve(options: Options, stop: asyncio.Event) -> None:
    """Run the agent until `stop` is set.

    Raises:
        AnotherAgent: another agent works on the same state directory.
        JournalRefused: the journal is of a newer format, or damaged.
        OrdersRefused: the journal belongs to another log.
        NoNvidiaGpus: there is no real GPU and no virtual one was asked for.
        Fenced: another agent of the same node id has taken over.
        Refused: the gateway does not take the agent's token, or is another one than the token says.
    """
    with hold(options.state_dir):
        gpus = _gpus(options)
        journal = Journal(options.state_dir / "journal.db")
        try:
            bus = await connected(options, stop)
            if bus is None:
                return
            try:
                await _serve(options, stop, bus, gpus, journal)
            finally:
                await bus.close()
        finally:
            journal.close()


async def _serve(options: Options, stop: asyncio.Event, bus: Bus, gpus: GpuFacts, journal: Journal) -> None:
    publisher, next_order = await reach(bus, options.node_id, journal, stop)
    if publisher is None:
        return
    incarnation = journal.begin_incarnation()
    bounds = Bounds(options.cpus, options.gpu_cpus)
    sharing = Sharing(options.state_dir / "gpus", [gpu.index for gpu in gpus.inventory()], virtual=gpus.virtual)
    gpu_bytes = sum(gpu.memory_bytes for gpu in gpus.inventory())
    scales = await asyncio.to_thread(scaling.found, options, gpu_bytes, virtual=gpus.virtual)
    launcher = Launcher(options, gpus.inventory(), bounds.begins, sharing.begins, scales)
    coordinator = Coordinator(
        options.node_id,
        gpus.inventory(),
        sharing,
        options.state_dir / "coordination",
        virtual=gpus.virtual,
        scales=bool(scales.memory),
        settings=Settings(peak_s=options.peak_s, interference_target=options.interference_target),
    )
    supervision = Supervision(
        options.state_dir, journal, launcher, publisher.wake, sharing, _driver(options), coordinator.admits
    )

    def report(event: Event) -> None:
        journal.record(facts=[event], time_s=time.time())
        publisher.wake()

    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    states = StateServer(supervision.tasks.get, supervision.folder)
    journal.state_port = await states.start(options.address, options.state_port or journal.state_port)

    files = await _file_server(options, bus, Entrance(supervision.tasks.get, supervision.folder))
    files_port = files.start(options.address, options.files_port) if files is not None else 0

    def joined(incarnation: int) -> NodeJoined:
        return _joined(options, gpus, scales, incarnation, supervision, journal.state_port, files_port)

    report(joined(incarnation))
    supervision.adopt()
    partition = await orders_partition(bus, options.node_id)

    gpu_tests = GpuTests(options.node_id, gpus, report)

    def take(orders: list[Order | CheckGpus], position: int) -> None:
        supervision.take([order for order in orders if not isinstance(order, CheckGpus)], position)
        gpu_tests.take([order for order in orders if isinstance(order, CheckGpus)])
        coordinator.wake()

    telemetry = Telemetry(
        bus,
        options.node_id,
        incarnation,
        gpus,
        active=supervision.active,
        pages_of=lambda task: supervision.folder(task).pages,
        cpu_s=lambda task: sum(cpu_s(pid) for pid in supervision.folder(task).processes()),
        report=report,
        rejoin=lambda: report(joined(journal.begin_incarnation())),
        complaints=complaints,
    )
    workers = [
        asyncio.create_task(supervision.run()),
        asyncio.create_task(publisher.run()),
        asyncio.create_task(telemetry.run(options.heartbeat_s)),
        asyncio.create_task(supervision.show(bounds.look, BOUNDS_LOOK_S)),
        asyncio.create_task(supervision.show(sharing.look, SHARING_LOOK_S)),
        asyncio.create_task(coordinator.run(supervision)),
        asyncio.create_task(gpu_tests.run()),
        asyncio.create_task(launcher.outputs.run(supervision.active_jobs, time.time)),
        asyncio.create_task(launcher.setups.run(supervision.active_setups, time.time)),
    ]
    orders = asyncio.create_task(follow_orders(bus, partition, options.node_id, next_order, take))
    log.info("node %s is up with %d GPUs, incarnation %d", options.node_id, len(gpus.inventory()), incarnation)
    try:
        stopped = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([stopped, orders, *workers], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for worker in done - {stopped}:
            worker.result()
        await _cancel([orders])
        if options.requeue_on_exit:
            note = "stopped in order"
            supervision.stop_all(NodeLeaving(node_id=options.node_id, incarnation=incarnation, note=note))
            await supervision.until_idle(LEAVING_PATIENCE_S)
            report(NodeLeft(node_id=options.node_id, incarnation=incarnation, note=note))
        else:
            log.info("%d tasks go on; the next start on %s adopts them", len(supervision.active()), options.state_dir)
        await _cancel(workers)
        with suppress(TimeoutError):
            await asyncio.wait_for(_publish_rest(publisher, journal), PUBLISH_TIMEOUT_S)
    finally:
        logging.getLogger().removeHandler(complaints)
        states.close()
        if files is not None:
            await asyncio.to_thread(files.close)
        await _cancel([orders, *workers])
        await publisher.close()


def _joined(
    options: Options,
    gpus: GpuFacts,
    scales: Scaling,
    incarnation: int,
    supervision: Supervision,
    state_port: int,
    files_port: int,
) -> NodeJoined:
    return NodeJoined(
        node_id=options.node_id,
        incarnation=incarnation,
        address=options.address,
        rack=options.rack,
        gpus=gpus.inventory(),
        tasks=[TaskRef(job_id=t.order.job_id, attempt=t.order.attempt) for t in supervision.active()],
        rendezvous_ports=options.rendezvous_ports,
        virtual=gpus.virtual,
        remaps=gpus.virtual,
        state_port=state_port,
        files_port=files_port,
        state_dir=str(options.state_dir),
        agent_version=VERSION,
        cpus=len(options.cpus),
        gpu_cpus=list(options.gpu_cpus.values()),
        memory_bytes=options.memory_bytes,
        bounds_by="affinity",
        scales_memory=scales.memory,
        scales_compute=True,
        spill_bytes=scales.spill_bytes,
        features=options.features,
        image_runner=options.image_runner,
    )


async def _publish_rest(publisher: Publisher, journal: Journal) -> None:
    while journal.backlog:
        await publisher.publish()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _gpus(options: Options) -> GpuFacts:
    if options.virtual_gpus:
        memory = options.gpu_memory_bytes or default_memory_bytes(options.virtual_gpus * options.part_of_machine)
        return VirtualGpus(options.virtual_gpus, options.gpu_type, memory)
    return NvmlGpus()


async def _file_server(options: Options, bus: Bus, entrance: Entrance) -> FileServer | None:
    """None where the agent has no key: its jobs are open to requests of the cell's own gateway alone.

    Raises:
        KeyUnreadable: the file of the key cannot be read, or is too short to be a secret.
    """
    if options.cell_key_file is not None:
        proof = Proof(read_key(options.cell_key_file))
    elif isinstance(bus, TellsNodeKeys) and (key := await node_key(bus, options.node_id)) is not None:
        proof = Proof(key, SIGNED_FOR_NODE)
    else:
        return None
    return FileServer(options.state_dir, options.node_id, proof, entrance)


def _driver(options: Options) -> Driver | None:
    """None where it is not wanted, or not there."""
    driver = Driver.load() if options.driver_checkpoint else None
    if options.driver_checkpoint and driver is None:
        log.warning("this machine has no NVIDIA driver with a checkpoint interface (570 and later): done without")
    return driver


async def _main(options: Options) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(options, stop)


def main() -> None:
    """The command."""
    logging.basicConfig(
        level=os.environ.get("SANJAYA_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    for chatty in ("websockets", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    options = parse()
    try:
        asyncio.run(_main(options))
    except Fenced as error:
        log.error("%s", error)
        sys.exit(EXIT_FENCED)
    except (JournalRefused, OrdersRefused, Refused) as error:
        log.error("%s", error)
        sys.exit(EXIT_REFUSED)
    except NoNvidiaGpus as error:
        log.error("%s  try: --virtual-gpus 4", error)
        sys.exit(EXIT_USAGE)
    except (AnotherAgent, BusError, KeyUnreadable) as error:
        log.error("%s", error)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
