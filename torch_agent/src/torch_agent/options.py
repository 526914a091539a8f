"""The agent's options: flags, and the environment variables that stand behind them."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from libs.bus.connect import is_gateway
from libs.contracts import features
from libs.contracts.cluster import PortRange
from libs.coordination.settings import DEFAULTS
from torch_agent.environments.data import Data, data_of
from torch_agent.environments.images import RUNNERS, found_runner
from torch_agent.processes import machine_cpus, machine_memory_bytes

MOST_INTERFERENCE = 0.5
"""Largest part of an owner's time that may be set."""


class Scale(Enum):
    """Whether the agent limits the memory of its tasks."""

    AUTO = "auto"
    """On virtual GPUs, where that works."""
    YES = "yes"
    """On real ones, too."""
    NO = "no"


@dataclass(frozen=True)
class Options:
    """How one agent runs."""

    node_id: str
    bus: str
    cell: str
    token: str
    """With which the agent asks the gateway; empty: none."""
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
    heartbeat_s: float

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
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="sanjaya agent", description="Join this machine's GPUs to a cell.")
    add = parser.add_argument
    add("--node-id", default=env("SANJAYA_NODE_ID", socket.gethostname()), help="unique within the cell")
    add("--join", metavar="URL", help="https://HOST:PORT of a cell's gateway: log and code come through it")
    add("--token", help="for the gateway, as `sanjaya up --host` shows it (SANJAYA_TOKEN keeps it out of `ps`)")
    add("--bus", default=env("SANJAYA_BUS"), help="sqlite:///…, kafka://… or, as --join, https://…")
    add("--cell", default=env("SANJAYA_CELL", "local"))
    add(
        "--token-file", type=Path, default=env("SANJAYA_TOKEN_FILE"), help="a file that holds the token for the gateway"
    )
    add("--gateway", default=env("SANJAYA_GATEWAY", "http://127.0.0.1:8420"), help="where uploaded code comes from")
    add("--state-dir", type=Path, default=env("SANJAYA_STATE_DIR"), help="journal, tasks and their output")
    add("--checkpoint-dir", type=Path, default=env("SANJAYA_CHECKPOINTS"), help="on storage that the nodes share")
    add("--virtual-gpus", type=int, default=0, metavar="N", help="offer N CPU slots instead of real GPUs")
    add("--gpu-type", default="virtual", help="type of the virtual GPUs")
    add(
        "--pin-virtual-gpus",
        action=argparse.BooleanOptionalAction,
        default={"1": True, "0": False}.get(env("SANJAYA_PIN_VIRTUAL_GPUS", "")),
        help="a CPU for each virtual GPU, as guests beside owners need it; several may share one "
        "(default: where there are as many CPUs as virtual GPUs)",
    )
    add(
        "--gpu-memory",
        type=int,
        default=env("SANJAYA_GPU_MEMORY", "0"),  # argparse makes it a number, or says what is wrong
        metavar="BYTES",
        help="memory of one virtual GPU",
    )
    add(
        "--scale-memory",
        choices=[each.value for each in Scale],
        default=env("SANJAYA_SCALE_MEMORY", Scale.AUTO.value),
        help="move GPU memory of running tasks to the host when others need it; auto: on virtual GPUs, where it works",
    )
    add(
        "--peak-s",
        type=float,
        default=float(env("SANJAYA_PEAK_S", str(DEFAULTS.peak_s))),
        metavar="SECONDS",
        help="how long an owner beside guests keeps the memory that it wanted at a peak",
    )
    add(
        "--interference-target",
        type=float,
        default=env("SANJAYA_INTERFERENCE_TARGET", str(DEFAULTS.interference_target)),
        metavar="RATIO",
        help="part of an owner's time that guests may cost it outside of its gaps (default: %(default)s)",
    )
    add("--cpus", type=int, default=env("SANJAYA_CPUS"), metavar="N", help="CPUs for jobs (default: the machine's)")
    add(
        "--memory",
        type=int,
        default=env("SANJAYA_MEMORY_BYTES"),
        metavar="BYTES",
        help="memory of the host that jobs may be promised (default: the machine's)",
    )
    add(
        "--part-of-machine",
        type=int,
        default=1,
        metavar="N",
        help="one of N agents here: an Nth is the default",
    )
    add("--part", type=int, default=int(env("SANJAYA_PART", "1")), metavar="K", help="the Kth of these agents")
    add("--rack", default=env("SANJAYA_RACK", "rack-1"), help="RDMA domain")
    add(
        "--address",
        default=env("SANJAYA_ADDRESS"),
        help="where the gateway and other nodes reach this one (default: with --join the address that faces the "
        "gateway, else 127.0.0.1)",
    )
    add("--rendezvous-ports", type=port_range, default=PortRange(first=29500, last=29599), metavar="A-B")
    add("--state-port", type=int, default=0, help="other agents fetch states of moving tasks there (0: any)")
    add(
        "--cell-key-file",
        type=Path,
        default=env("SANJAYA_CELL_KEY_FILE"),
        help="the cell's secret: with it the gateway fetches files of jobs; none: no files are served",
    )
    add("--files-port", type=int, default=0, help="the gateway fetches files of jobs there (0: any)")
    add(
        "--outputs-gib",
        type=float,
        default=float(env("SANJAYA_OUTPUTS_GIB", "100")),
        help="what jobs that have ended may keep here together (submit --output); beyond, the oldest goes",
    )
    add(
        "--outputs-days",
        type=float,
        default=float(env("SANJAYA_OUTPUTS_DAYS", "14")),
        help="how long what a job keeps stays after its last change",
    )
    add(
        "--setups-gib",
        type=float,
        default=float(env("SANJAYA_SETUPS_GIB", "50")),
        help="what environments of ended jobs (submit --setup) may take here together; beyond, the oldest goes",
    )
    add(
        "--setups-days",
        type=float,
        default=float(env("SANJAYA_SETUPS_DAYS", "14")),
        help="how long such an environment stays after its last use",
    )
    add(
        "--setup-limit",
        type=float,
        default=float(env("SANJAYA_SETUP_LIMIT_S", "1800")),
        metavar="SECONDS",
        help="how long the setup of a job may take",
    )
    add(
        "--image-runner",
        choices=("auto", "none", *RUNNERS),
        default=env("SANJAYA_IMAGE_RUNNER", "auto"),
        help="what runs container images (submit --image); auto: the first that is installed",
    )
    add(
        "--data",
        action="append",
        default=env("SANJAYA_DATA", "").split(),
        metavar="NAME=PATH[:ro]",
        help="data that jobs ask for by name (submit --mount NAME); repeat",
    )
    add(
        "--pool",
        choices=features.POOLS,
        default=env("SANJAYA_POOL") or None,
        help="set this node apart: trial runs of wide jobs are placed here first, and no other job",
    )
    add(
        "--driver-checkpoint",
        action=argparse.BooleanOptionalAction,
        default=env("SANJAYA_DRIVER_CHECKPOINT") == "1",
        help="suspend processes without the harness by the NVIDIA driver (570 and later)",
    )
    add(
        "--on-exit",
        choices=("keep", "requeue"),
        default="keep",
        help="at an orderly exit: tasks go on and the next start adopts them, or end and their jobs are queued again",
    )
    add("--heartbeat", type=float, default=2.0, metavar="SECONDS")
    found = parser.parse_args(arguments)
    if found.join and not urlsplit(found.join).hostname:
        parser.error(f"--join {found.join!r}: expected https://HOST:PORT")
    found.bus = (found.join or found.bus or "").rstrip("/")
    joins = is_gateway(found.bus)
    if joins:
        found.gateway = found.bus
    if not found.bus:
        parser.error(
            "--bus or --join (or SANJAYA_BUS) is needed: sqlite:///path/log.db, kafka://host:port or https://…"
        )
    try:
        token = found.token or (found.token_file.read_text() if found.token_file else env("SANJAYA_TOKEN", ""))
    except OSError as error:
        parser.error(f"--token-file {found.token_file}: {error.strerror}; expected a file that holds the token")
    if found.virtual_gpus < 0:
        parser.error(f"--virtual-gpus {found.virtual_gpus}: expected 0 or more")
    most = len(machine_cpus())
    if found.cpus is not None and not 1 <= found.cpus <= most:
        parser.error(f"--cpus {found.cpus}: expected 1 to {most}, the CPUs that this process may use")
    if found.memory is not None and found.memory < 0:
        parser.error(f"--memory {found.memory}: expected 0 or more bytes")
    if found.scale_memory not in [each.value for each in Scale]:  # argparse checks no default
        parser.error(f"SANJAYA_SCALE_MEMORY={found.scale_memory}: expected {', '.join(each.value for each in Scale)}")
    if found.pool not in (None, *features.POOLS):
        parser.error(f"SANJAYA_POOL={found.pool}: expected {', '.join(features.POOLS)}")
    if not found.peak_s >= 0:
        parser.error(f"--peak-s {found.peak_s}: expected 0 or more seconds")
    if not 0 < found.interference_target <= MOST_INTERFERENCE:
        expected = f"expected more than 0, and {MOST_INTERFERENCE} at most"
        parser.error(f"--interference-target {found.interference_target:g}: {expected}")
    if found.part_of_machine < 1:
        parser.error(f"--part-of-machine {found.part_of_machine}: expected 1 or more agents")
    if not 1 <= found.part <= found.part_of_machine:
        parser.error(f"--part {found.part}: expected 1 to {found.part_of_machine}, the number of --part-of-machine")
    if found.pin_virtual_gpus and not found.virtual_gpus:
        parser.error("--pin-virtual-gpus: expected --virtual-gpus N as well; real GPUs are no CPUs")
    try:
        data = dict(data_of(text) for text in found.data)
    except ValueError as error:
        parser.error(f"--data {error}")
    runner = found_runner(found.image_runner, env("PATH"))
    if not runner and found.image_runner not in ("auto", "none"):
        parser.error(f"--image-runner {found.image_runner}: expected a program on PATH, which has none of this name")
    cpus = _cpus(found.cpus or max(1, most // found.part_of_machine), found.part, found.part_of_machine)
    pins = 0 < found.virtual_gpus <= len(cpus) if found.pin_virtual_gpus is None else found.pin_virtual_gpus
    state_dir = found.state_dir or Path.home() / ".sanjaya" / found.cell / "nodes" / found.node_id
    return Options(
        node_id=found.node_id,
        bus=found.bus,
        cell=found.cell,
        token=token.strip(),
        gateway=found.gateway,
        state_dir=Path(state_dir).absolute(),
        checkpoint_dir=Path(found.checkpoint_dir or state_dir / "checkpoints").absolute(),
        virtual_gpus=found.virtual_gpus,
        gpu_type=found.gpu_type,
        gpu_memory_bytes=found.gpu_memory,
        scale_memory=Scale(found.scale_memory),
        peak_s=found.peak_s,
        interference_target=found.interference_target,
        rack=found.rack,
        address=found.address or (address_facing(found.bus) if joins else "127.0.0.1"),
        rendezvous_ports=found.rendezvous_ports,
        state_port=found.state_port,
        cell_key_file=Path(found.cell_key_file) if found.cell_key_file else None,
        files_port=found.files_port,
        outputs_most_bytes=int(found.outputs_gib * 2**30),
        outputs_longest_s=found.outputs_days * 86_400.0,
        part_of_machine=found.part_of_machine,
        cpus=cpus,
        pin_virtual_gpus=pins,
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
    )


def _cpus(count: int, part: int, parts: int) -> tuple[int, ...]:
    """So many CPUs of this machine, from the beginning of this part of it on: agents side by side begin on others."""
    cpus = machine_cpus()
    begin = (part - 1) * len(cpus) // parts
    return tuple([*cpus[begin:], *cpus[:begin]][:count])


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


def port_range(text: str) -> PortRange:
    """`29500-29599`.

    Raises:
        argparse.ArgumentTypeError: not two ports in ascending order.
    """
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) <= int(last) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r}: expected two ports in ascending order, such as 29500-29599")
    return PortRange(first=int(first), last=int(last))
