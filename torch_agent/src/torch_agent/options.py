"""The agent's options: flags, and the environment variables that stand behind them."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from libs.contracts.cluster import PortRange


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
    rack: str
    address: str
    rendezvous_ports: PortRange
    state_port: int
    """Where other agents fetch the states of tasks that move; 0: any free port."""
    cell_key_file: Path | None
    """Holds the secret of the cell with which the gateway asks for files; None: no files are served."""
    files_port: int
    """Where the gateway fetches files of jobs; 0: any free port."""
    outputs_most_bytes: int
    """What jobs that have ended may keep together on this node."""
    outputs_longest_s: float
    """How long what a job keeps stays after its last change."""
    driver_checkpoint: bool
    """Whether the driver moves the memory of processes without the harness."""
    requeue_on_exit: bool
    """Whether an orderly exit ends the tasks and gives their jobs back to the queue; else they go on, to be adopted."""
    heartbeat_s: float


def parse(arguments: list[str] | None = None) -> Options:
    """Read flags; argparse ends the process with status 2 and a message when they are wrong."""
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="sanjaya agent", description="Join this machine's GPUs to a cell.")
    add = parser.add_argument
    add("--node-id", default=env("SANJAYA_NODE_ID", socket.gethostname()), help="unique within the cell")
    add("--bus", default=env("SANJAYA_BUS"), help="sqlite:///… or kafka://…")
    add("--cell", default=env("SANJAYA_CELL", "local"))
    add(
        "--token-file", type=Path, default=env("SANJAYA_TOKEN_FILE"), help="a file that holds the token for the gateway"
    )
    add("--gateway", default=env("SANJAYA_GATEWAY", "http://127.0.0.1:8420"), help="where uploaded code comes from")
    add("--state-dir", type=Path, default=env("SANJAYA_STATE_DIR"), help="journal, tasks and their output")
    add("--checkpoint-dir", type=Path, default=env("SANJAYA_CHECKPOINTS"), help="on storage that the nodes share")
    add("--virtual-gpus", type=int, default=0, metavar="N", help="offer N CPU slots instead of real GPUs")
    add("--gpu-type", default="virtual", help="type of the virtual GPUs")
    add("--gpu-memory", type=int, default=0, metavar="BYTES", help="memory of one virtual GPU")
    add("--rack", default=env("SANJAYA_RACK", "rack-1"), help="RDMA domain")
    add("--address", default=env("SANJAYA_ADDRESS", "127.0.0.1"), help="where other nodes reach this one")
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
    if not found.bus:
        parser.error("--bus (or SANJAYA_BUS) is needed: sqlite:///path/log.db or kafka://host:port")
    try:
        token = found.token_file.read_text() if found.token_file else env("SANJAYA_TOKEN", "")
    except OSError as error:
        parser.error(f"--token-file {found.token_file}: {error.strerror}; expected a file that holds the token")
    if found.virtual_gpus < 0:
        parser.error(f"--virtual-gpus {found.virtual_gpus}: expected 0 or more")
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
        rack=found.rack,
        address=found.address,
        rendezvous_ports=found.rendezvous_ports,
        state_port=found.state_port,
        cell_key_file=Path(found.cell_key_file) if found.cell_key_file else None,
        files_port=found.files_port,
        outputs_most_bytes=int(found.outputs_gib * 2**30),
        outputs_longest_s=found.outputs_days * 86_400.0,
        driver_checkpoint=found.driver_checkpoint,
        requeue_on_exit=found.on_exit == "requeue",
        heartbeat_s=found.heartbeat,
    )


def port_range(text: str) -> PortRange:
    """`29500-29599`.

    Raises:
        argparse.ArgumentTypeError: not two ports in ascending order.
    """
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and 1024 <= int(first) <= int(last) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r}: expected two ports in ascending order, such as 29500-29599")
    return PortRange(first=int(first), last=int(last))
