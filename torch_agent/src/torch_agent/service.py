"""The agent: joins a node to a cell, runs what it is ordered to, and reports what it sees.

python -m torch_agent.service --bus sqlite:///… --node-id n1 --virtual-gpus 4
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import sys
from contextlib import suppress

from libs.bus.port import Bus, BusError, BusUnavailable, Fenced, Refused, TellsNodeKeys
from libs.node.lease import mistake_in
from libs.node.serving import SIGNED_FOR_NODE, Proof
from libs.runtime.cell_key import KeyUnreadable, read_key
from libs.runtime.disk_room import lacks_room
from libs.runtime.waits import within
from torch_agent.assembly import Agent, Ports
from torch_agent.beginning import OrdersRefused
from torch_agent.cgroups import NoCgroups
from torch_agent.complaints import Complaints
from torch_agent.files.server import FileServer
from torch_agent.holding import AnotherAgent, hold
from torch_agent.journal import Journal, JournalDamaged, JournalRefused, opened, reserve
from torch_agent.leasing import Leasing
from torch_agent.moving.sending import StateServer
from torch_agent.options import Options, parse
from torch_agent.ordering import follow_orders, orders_partition
from torch_agent.probes import scaling
from torch_agent.probes.gpus import GpuFacts
from torch_agent.probes.nvml import NoNvidiaGpus, NvmlGpus
from torch_agent.probes.virtual import VirtualGpus, default_memory_bytes
from torch_agent.reaching import connected, has_tasks, lasting, lease_terms, node_key, reach
from torch_agent.sessions.entering import Entrance

log = logging.getLogger("torch_agent")

PUBLISH_TIMEOUT_S = 5.0
HEARTBEAT_S = 2.0
NO_ROOM_RETRY_S = 5.0
EXIT_FENCED, EXIT_REFUSED, EXIT_USAGE = 75, 78, 2


class LeaseRefused(Exception):
    """This agent cannot keep the lease of its cell; the message has the values, and what was expected."""


async def serve(options: Options, stop: asyncio.Event) -> None:
    """Run the agent until `stop` is set.

    Raises:
        AnotherAgent: another agent works on the same state directory.
        JournalRefused: the journal is of a newer format.
        OrdersRefused: the journal belongs to another log.
        NoCgroups: tasks cannot have control groups where they are to.
        NoNvidiaGpus: there is no real GPU and no virtual one was asked for.
        Fenced: another agent of the same node id has taken over.
        Refused: the gateway does not take the agent's token, or is another one than the token says; and there are no
            tasks from before that would be left to themselves.
        LeaseRefused: the heartbeat that was asked for is too slow for the cell.
        OSError: the disk has no room for what an agent needs to begin, among others; so does sqlite3.Error.
    """
    with hold(options.state_dir):
        gpus = _gpus(options)
        journal, damage = opened(options.state_dir / "journal.db")
        try:
            reserve(journal, options.state_dir)
            patient = has_tasks(journal, options.state_dir / "tasks")
            bus = await connected(options, stop, patient=patient)
            if bus is None:
                return
            try:
                await _serve(options, stop, bus, gpus, journal, damage)
            finally:
                await bus.close()
        finally:
            journal.close()


async def _serve(
    options: Options, stop: asyncio.Event, bus: Bus, gpus: GpuFacts, journal: Journal, damage: str
) -> None:
    patient = has_tasks(journal, options.state_dir / "tasks")
    publisher, begins = await reach(bus, options, journal, stop, patient=patient)
    if publisher is None:
        return
    inventory = gpus.inventory()
    gpu_bytes = sum(gpu.memory_bytes for gpu in inventory)
    scales = await asyncio.to_thread(scaling.found, options, gpu_bytes, virtual=gpus.virtual)
    leasing, heartbeat_s = await _leasing(options, bus)
    agent = Agent(options, gpus, journal, publisher, scales, bus, leasing)
    supervision = agent.supervision
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    states = StateServer(supervision.tasks.get, supervision.folder)
    journal.state_port = await states.start(options.address, options.state_port or journal.state_port)
    files = await _file_server(options, bus, Entrance(supervision.tasks.get, supervision.folder))
    files_port = files.start(options.address, options.files_port) if files is not None else 0

    if damage:
        log.error("%s", damage)
    if begins.found:
        log.error("the journal did not have these tasks as they are: %s", ", ".join(begins.found))
    agent.join(Ports(states=journal.state_port, files=files_port))
    partition = await orders_partition(bus, options.node_id)
    workers = agent.workers(complaints, heartbeat_s)
    orders = asyncio.create_task(follow_orders(bus, partition, options.node_id, begins.next_order, agent.take))
    log.info("node %s is up with %d GPUs, incarnation %d", options.node_id, len(inventory), agent.incarnation)
    try:
        await _until(stop, [orders, *workers])
        supervision.agent_ends()  # at once: a log that is going down, too, may keep what follows waiting for long
        await _cancel([orders])
        await agent.leave()
        await _cancel(workers)
        with suppress(TimeoutError):
            await asyncio.wait_for(agent.publish_rest(), PUBLISH_TIMEOUT_S)
    finally:
        logging.getLogger().removeHandler(complaints)
        agent.close()
        states.close()
        if files is not None:
            await asyncio.to_thread(files.close)
        await _cancel([orders, *workers])
        await publisher.close()


async def _leasing(options: Options, bus: Bus) -> tuple[Leasing, float]:
    """Of this node's lease, on the cell's terms, and the seconds between two heartbeats.

    Raises:
        LeaseRefused: the heartbeat that was asked for is too slow for these terms.
    """
    terms = await lasting(lambda: lease_terms(bus, options))
    heartbeat_s = min(HEARTBEAT_S, terms.lease_s / 6) if options.heartbeat_s is None else options.heartbeat_s
    if (wrong := mistake_in(terms, heartbeat_s)) is not None:
        raise LeaseRefused(f"--heartbeat: {wrong}")
    return Leasing(options.state_dir / "lease", terms), heartbeat_s


async def _until(stop: asyncio.Event, workers: list[asyncio.Task[None]]) -> None:
    """Wait for the order to stop, or for a worker's end, which is an error: it is raised here."""
    stopped = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopped, *workers], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    for worker in done - {stopped}:
        worker.result()


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


async def _main(options: Options) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    while not stop.is_set():
        try:
            await serve(options, stop)
            return
        except (OSError, sqlite3.Error, BusUnavailable) as error:
            if not lacks_room(error, options.state_dir):
                raise
            log.error("the agent waits: there is no room on the disk of %s: %s", options.state_dir, error)
        except JournalDamaged as error:  # found while it was at work; the start sets it aside
            log.error("the agent starts anew: %s", error)
        await within(stop, NO_ROOM_RETRY_S)


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
    except NoCgroups as error:
        log.error("%s  try: --cgroup auto", error)
        sys.exit(EXIT_USAGE)
    except NoNvidiaGpus as error:
        log.error("%s  try: --virtual-gpus 4", error)
        sys.exit(EXIT_USAGE)
    except (AnotherAgent, BusError, KeyUnreadable, LeaseRefused) as error:
        log.error("%s", error)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
