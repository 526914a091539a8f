"""How an agent runs: what its flags (`flags.py`) come to on this machine."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from libs.bus.connect import is_gateway
from libs.contracts import features
from libs.contracts.cluster import PortRange
from libs.node.lease import LeaseTerms, mistake_in
from torch_agent.environments.data import Data, data_of
from torch_agent.environments.images import found_runner
from torch_agent.flags import Scale, parser_of
from torch_agent.processes import machine_cpus, machine_memory_bytes

MOST_INTERFERENCE = 0.5
"""Largest part of an owner's time that may be set."""


@dataclass(frozen=True)
class Options:
    """How one agent runs."""

    node_id: str
    bus: str
    cell: str
    token: str
    """With which the agent asks the gateway, as it was at the start; empty: none."""
    token_file: Path | None
    """Holds it, and may hold another one later."""
    gateway: str
    state_dir: Path
    checkpoint_dir: Path
    """Jobs' checkpoints, a folder each; jobs move between the nodes that share it."""
    virtual_gpus: int
    """0: real GPUs, through NVML."""
    gpu_type: str
    gpu_memory_bytes: int
    """Of one virtual GPU; 0: an equal share of the machine's memory."""
    scale_memory: Scale
    peak_s: float
    """How long an owner beside guests keeps the memory that it wanted at a peak."""
    interference_target: float
    """Part of an owner's time that guests may cost it outside of its gaps."""
    rack: str
    address: str
    rendezvous_ports: PortRange
    state_port: int
    """Where other agents fetch the states of tasks that move; 0: any free port."""
    cell_key_file: Path | None
    """Holds the secret of the cell with which the gateway asks for files; None: an agent that has joined by the gateway
    gets one for its node alone, and others serve no files."""
    files_port: int
    """Where the gateway fetches files of jobs; 0: any free port."""
    outputs_most_bytes: int
    """What jobs that have ended may keep together on this node."""
    outputs_longest_s: float
    """How long what a job keeps stays after its last change."""
    part_of_machine: int
    """So many agents share this machine."""
    cpus: tuple[int, ...]
    """Those that tasks may use, of those that the agent itself may use: the first ones of its part of the machine."""
    cgroups: bool
    """Whether tasks are to have control groups."""
    cgroup: Path | None
    """The group of cgroup v2 in which they are made; None: the agent's own, where that is possible."""
    pin_virtual_gpus: bool
    """Whether each virtual GPU has one of these CPUs, on which the processes that train there run; else they float."""
    memory_bytes: int
    """Of the host, that tasks may be promised."""
    setups_most_bytes: int
    """What environments that jobs have set up, and do not use any more, may take together on this node."""
    setups_longest_s: float
    """How long such an environment is kept after its last use."""
    setup_limit_s: float
    """How long a job's setup may take."""
    image_runner: str
    """The program that runs container images; empty: none."""
    data: dict[str, Data]
    """{name: the data that jobs ask for by it}."""
    pool: str
    """What the node is set apart for; empty: for nothing."""
    driver_checkpoint: bool
    """Whether the driver moves the memory of processes without the harness."""
    requeue_on_exit: bool
    """Whether an orderly exit ends the tasks and gives their jobs back to the queue; else they go on, to be adopted."""
    heartbeat_s: float | None
    """Seconds between two heartbeats; None: as the lease needs it."""
    lease: LeaseTerms
    """The cell's may differ in the first two, where it tells them."""

    @property
    def gpu_cpus(self) -> dict[int, int]:
        """{virtual GPU: the CPU that it has}; empty: none has any, and the processes that train there float."""
        if not self.pin_virtual_gpus:
            return {}
        return {index: self.cpus[index % len(self.cpus)] for index in range(self.virtual_gpus)}

    @property
    def features(self) -> list[str]:
        """What jobs may need of this node beside GPUs."""
        found = [features.IMAGES] if self.image_runner else []
        found += [features.pool(self.pool)] if self.pool else []
        return sorted([*found, *(features.data(name) for name in self.data)])


def parse(arguments: list[str] | None = None) -> Options:
    """Read flags; argparse ends the process with status 2 and a message when they are wrong."""
    parser = parser_of(os.environ)
    found = parser.parse_args(arguments)
    try:
        return _options(found)
    except ValueError as error:
        parser.error(str(error))


def _options(found: argparse.Namespace) -> Options:
    """What the flags come to.

    Raises:
        ValueError: they are wrong, or wrong together; the message says which, and what was expected.
    """
    bus, token = _bus(found), _token(found)
    for mistakes in MISTAKES:
        for mistake in mistakes(found):
            raise ValueError(mistake)
    data, runner, cpus = _data(found), _image_runner(found), _cpus(found)
    state_dir = found.state_dir or Path.home() / ".sanjaya" / found.cell / "nodes" / found.node_id
    joins = is_gateway(bus)
    return Options(
        node_id=found.node_id,
        bus=bus,
        cell=found.cell,
        token=token,
        token_file=found.token_file if not found.token else None,
        gateway=bus if joins else found.gateway,
        state_dir=Path(state_dir).absolute(),
        checkpoint_dir=Path(found.checkpoint_dir or state_dir / "checkpoints").absolute(),
        virtual_gpus=found.virtual_gpus,
        gpu_type=found.gpu_type,
        gpu_memory_bytes=found.gpu_memory,
        scale_memory=Scale(found.scale_memory),
        peak_s=found.peak_s,
        interference_target=found.interference_target,
        rack=found.rack,
        address=found.address or (address_facing(bus) if joins else "127.0.0.1"),
        rendezvous_ports=found.rendezvous_ports,
        state_port=found.state_port,
        cell_key_file=Path(found.cell_key_file) if found.cell_key_file else None,
        files_port=found.files_port,
        outputs_most_bytes=int(found.outputs_gib * 2**30),
        outputs_longest_s=found.outputs_days * 86_400.0,
        part_of_machine=found.part_of_machine,
        cpus=cpus,
        cgroups=found.cgroup != "none",
        cgroup=Path(found.cgroup) if found.cgroup not in ("auto", "none") else None,
        pin_virtual_gpus=_pins(found, cpus),
        memory_bytes=machine_memory_bytes() // found.part_of_machine if found.memory is None else found.memory,
        setups_most_bytes=int(found.setups_gib * 2**30),
        setups_longest_s=found.setups_days * 86_400.0,
        setup_limit_s=found.setup_limit,
        image_runner=runner,
        data=data,
        pool=found.pool or "",
        driver_checkpoint=found.driver_checkpoint,
        requeue_on_exit=found.on_exit == "requeue",
        heartbeat_s=found.heartbeat,
        lease=_lease(found),
    )


def _bus(found: argparse.Namespace) -> str:
    """The log that the agent joins, or the gateway through which it does."""
    if found.join and not urlsplit(found.join).hostname:
        raise ValueError(f"--join {found.join!r}: expected https://HOST:PORT")
    bus: str = (found.join or found.bus or "").rstrip("/")
    if not bus:
        raise ValueError(
            "--bus or --join (or SANJAYA_BUS) is needed: sqlite:///path/log.db, kafka://host:port or https://…"
        )
    return bus


def _token(found: argparse.Namespace) -> str:
    if found.token:
        return str(found.token).strip()
    return token_in(found.token_file) if found.token_file else os.environ.get("SANJAYA_TOKEN", "").strip()


def token_in(path: Path) -> str:
    """Read the token from its file.

    Raises:
        ValueError: the file cannot be read.
    """
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "what it holds is no text"
        raise ValueError(f"--token-file {path}: {what}; expected a file that holds the token") from error


def _mistakes_in_amounts(found: argparse.Namespace) -> Iterator[str]:
    if found.virtual_gpus < 0:
        yield f"--virtual-gpus {found.virtual_gpus}: expected 0 or more"
    most = len(machine_cpus())
    if found.cpus is not None and not 1 <= found.cpus <= most:
        yield f"--cpus {found.cpus}: expected 1 to {most}, the CPUs that this process may use"
    if found.memory is not None and found.memory < 0:
        yield f"--memory {found.memory}: expected 0 or more bytes"


def _mistakes_in_variables(found: argparse.Namespace) -> Iterator[str]:
    """Of choices, which argparse looks at in flags alone: it checks no default."""
    if found.scale_memory not in [each.value for each in Scale]:
        yield f"SANJAYA_SCALE_MEMORY={found.scale_memory}: expected {', '.join(each.value for each in Scale)}"
    if found.pool not in (None, *features.POOLS):
        yield f"SANJAYA_POOL={found.pool}: expected {', '.join(features.POOLS)}"


def _mistakes_in_sharing(found: argparse.Namespace) -> Iterator[str]:
    if not found.peak_s >= 0:
        yield f"--peak-s {found.peak_s}: expected 0 or more seconds"
    if not 0 < found.interference_target <= MOST_INTERFERENCE:
        expected = f"expected more than 0, and {MOST_INTERFERENCE} at most"
        yield f"--interference-target {found.interference_target:g}: {expected}"


def _mistakes_in_parts(found: argparse.Namespace) -> Iterator[str]:
    if found.part_of_machine < 1:
        yield f"--part-of-machine {found.part_of_machine}: expected 1 or more agents"
    if not 1 <= found.part <= found.part_of_machine:
        yield f"--part {found.part}: expected 1 to {found.part_of_machine}, the number of --part-of-machine"
    if found.cgroup not in ("auto", "none") and not (Path(found.cgroup) / "cgroup.procs").exists():
        yield f"--cgroup {found.cgroup}: expected auto, none, or the folder of a group of cgroup v2"
    if found.pin_virtual_gpus and not found.virtual_gpus:
        yield "--pin-virtual-gpus: expected --virtual-gpus N as well; real GPUs are no CPUs"


def _mistakes_in_lease(found: argparse.Namespace) -> Iterator[str]:
    if (wrong := mistake_in(_lease(found), found.heartbeat)) is not None:
        yield f"--node-timeout, --lease-margin, --lease-grace, --heartbeat: {wrong}"


MISTAKES = (
    _mistakes_in_amounts,
    _mistakes_in_variables,
    _mistakes_in_sharing,
    _mistakes_in_parts,
    _mistakes_in_lease,
)


def _lease(found: argparse.Namespace) -> LeaseTerms:
    return LeaseTerms(node_timeout_s=found.node_timeout, margin_s=found.lease_margin, grace_s=found.lease_grace)


def _data(found: argparse.Namespace) -> dict[str, Data]:
    try:
        return dict(data_of(text) for text in found.data)
    except ValueError as error:
        raise ValueError(f"--data {error}") from error


def _image_runner(found: argparse.Namespace) -> str:
    runner = found_runner(found.image_runner, os.environ.get("PATH"))
    if not runner and found.image_runner not in ("auto", "none"):
        expected = "expected a program on PATH, which has none of this name"
        raise ValueError(f"--image-runner {found.image_runner}: {expected}")
    return runner


def _cpus(found: argparse.Namespace) -> tuple[int, ...]:
    """Those for tasks, from the beginning of this part of the machine on: agents side by side begin on others."""
    cpus, parts = machine_cpus(), found.part_of_machine
    count = found.cpus or max(1, len(cpus) // parts)
    begin = (found.part - 1) * len(cpus) // parts
    return tuple([*cpus[begin:], *cpus[:begin]][:count])


def _pins(found: argparse.Namespace, cpus: tuple[int, ...]) -> bool:
    """Whether virtual GPUs have CPUs; where nothing is said, that is where there are enough."""
    enough = 0 < found.virtual_gpus <= len(cpus)
    return bool(enough if found.pin_virtual_gpus is None else found.pin_virtual_gpus)


def address_facing(url: str) -> str:
    """The address of this machine from which it reaches the host of a URL; 127.0.0.1 where there is no way to it."""
    parts = urlsplit(url)
    try:
        family, _, _, _, place = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # of a datagram socket: nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
