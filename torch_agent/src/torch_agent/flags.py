"""The flags of an agent, by subject, and the environment variables that stand behind them.

What they mean together is checked and computed in `options.py`.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from libs.contracts import features
from libs.contracts.cluster import PortRange
from libs.coordination.settings import DEFAULTS
from libs.node.lease import DEFAULTS as DEFAULT_LEASE
from torch_agent.environments.images import RUNNERS


class Scale(Enum):
    """Whether the agent limits the memory of its tasks."""

    AUTO = "auto"
    """On virtual GPUs, where that works."""
    YES = "yes"
    """On real ones, too."""
    NO = "no"


def parser_of(env: Mapping[str, str]) -> argparse.ArgumentParser:
    """The parser of an agent's flags; defaults are those of its environment.

    Defaults stay text where flags are numbers: argparse reads them as it reads flags, and says what is wrong.
    """
    parser = argparse.ArgumentParser(prog="sanjaya agent", description="Join this machine's GPUs to a cell.")
    # In the order of --help.
    for declare in (_cell, _folders, _virtual_gpus, _sharing, _machine, _network, _kept, _jobs, _node, _lease):
        declare(parser, env)
    return parser


def _cell(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """What the node is called, and which cell it joins."""
    add = parser.add_argument
    add("--node-id", default=env.get("SANJAYA_NODE_ID", socket.gethostname()), help="unique within the cell")
    add("--join", metavar="URL", help="https://HOST:PORT of a cell's gateway: log and code come through it")
    add("--token", help="for the gateway, as `sanjaya up --host` shows it (SANJAYA_TOKEN keeps it out of `ps`)")
    add("--bus", default=env.get("SANJAYA_BUS"), help="sqlite:///…, kafka://… or, as --join, https://…")
    add("--cell", default=env.get("SANJAYA_CELL", "local"))
    add(
        "--token-file",
        type=Path,
        default=env.get("SANJAYA_TOKEN_FILE"),
        help="a file that holds the token for the gateway",
    )
    add("--gateway", default=env.get("SANJAYA_GATEWAY", "http://127.0.0.1:8420"), help="where uploaded code comes from")


def _folders(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Where the agent and jobs keep what they write."""
    add = parser.add_argument
    add("--state-dir", type=Path, default=env.get("SANJAYA_STATE_DIR"), help="journal, tasks and their output")
    add("--checkpoint-dir", type=Path, default=env.get("SANJAYA_CHECKPOINTS"), help="on storage that the nodes share")


def _virtual_gpus(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """What is offered instead of real GPUs."""
    add = parser.add_argument
    add("--virtual-gpus", type=int, default=0, metavar="N", help="offer N CPU slots instead of real GPUs")
    add("--gpu-type", default="virtual", help="type of the virtual GPUs")
    add(
        "--pin-virtual-gpus",
        action=argparse.BooleanOptionalAction,
        default={"1": True, "0": False}.get(env.get("SANJAYA_PIN_VIRTUAL_GPUS", "")),
        help="a CPU for each virtual GPU, as guests beside owners need it; several may share one "
        "(default: where there are as many CPUs as virtual GPUs)",
    )
    add(
        "--gpu-memory",
        type=int,
        default=env.get("SANJAYA_GPU_MEMORY", "0"),
        metavar="BYTES",
        help="memory of one virtual GPU",
    )


def _sharing(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """What jobs that share a GPU do to each other."""
    add = parser.add_argument
    add(
        "--scale-memory",
        choices=[each.value for each in Scale],
        default=env.get("SANJAYA_SCALE_MEMORY", Scale.AUTO.value),
        help="move GPU memory of running tasks to the host when others need it; auto: on virtual GPUs, where it works",
    )
    add(
        "--peak-s",
        type=float,
        default=env.get("SANJAYA_PEAK_S", str(DEFAULTS.peak_s)),
        metavar="SECONDS",
        help="how long an owner beside guests keeps the memory that it wanted at a peak",
    )
    add(
        "--interference-target",
        type=float,
        default=env.get("SANJAYA_INTERFERENCE_TARGET", str(DEFAULTS.interference_target)),
        metavar="RATIO",
        help="part of an owner's time that guests may cost it outside of its gaps (default: %(default)s)",
    )


def _machine(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """How much of the machine is for jobs."""
    add = parser.add_argument
    add("--cpus", type=int, default=env.get("SANJAYA_CPUS"), metavar="N", help="CPUs for jobs (default: the machine's)")
    add(
        "--memory",
        type=int,
        default=env.get("SANJAYA_MEMORY_BYTES"),
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
    add("--part", type=int, default=env.get("SANJAYA_PART", "1"), metavar="K", help="the Kth of these agents")
    add(
        "--cgroup",
        default=env.get("SANJAYA_CGROUP", "auto"),
        metavar="PATH",
        help="a group of cgroup v2 in which each task gets one, to be bounded and ended as a whole; auto: the agent's "
        "own, where it may make groups there; none: tasks have none",
    )


def _network(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """In which rack the node is, and where it is reached."""
    add = parser.add_argument
    add("--rack", default=env.get("SANJAYA_RACK", "rack-1"), help="RDMA domain")
    add(
        "--address",
        default=env.get("SANJAYA_ADDRESS"),
        help="where the gateway and other nodes reach this one (default: with --join the address that faces the "
        "gateway, else 127.0.0.1)",
    )
    add("--rendezvous-ports", type=port_range, default=PortRange(first=29500, last=29599), metavar="A-B")
    add("--state-port", type=int, default=0, help="other agents fetch states of moving tasks there (0: any)")
    add(
        "--cell-key-file",
        type=Path,
        default=env.get("SANJAYA_CELL_KEY_FILE"),
        help="the cell's secret: with it the gateway fetches files of jobs; none: no files are served",
    )
    add("--files-port", type=int, default=0, help="the gateway fetches files of jobs there (0: any)")


def _kept(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """How much of what ended jobs leave stays, and how long."""
    add = parser.add_argument
    add(
        "--outputs-gib",
        type=float,
        default=env.get("SANJAYA_OUTPUTS_GIB", "100"),
        help="what jobs that have ended may keep here together (submit --output); beyond, the oldest goes",
    )
    add(
        "--outputs-days",
        type=float,
        default=env.get("SANJAYA_OUTPUTS_DAYS", "14"),
        help="how long what a job keeps stays after its last change",
    )
    add(
        "--setups-gib",
        type=float,
        default=env.get("SANJAYA_SETUPS_GIB", "50"),
        help="what environments of ended jobs (submit --setup) may take here together; beyond, the oldest goes",
    )
    add(
        "--setups-days",
        type=float,
        default=env.get("SANJAYA_SETUPS_DAYS", "14"),
        help="how long such an environment stays after its last use",
    )


def _jobs(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """What jobs may have around their processes."""
    add = parser.add_argument
    add(
        "--setup-limit",
        type=float,
        default=env.get("SANJAYA_SETUP_LIMIT_S", "1800"),
        metavar="SECONDS",
        help="how long the setup of a job may take",
    )
    add(
        "--image-runner",
        choices=("auto", "none", *RUNNERS),
        default=env.get("SANJAYA_IMAGE_RUNNER", "auto"),
        help="what runs container images (submit --image); auto: the first that is installed",
    )
    add(
        "--data",
        action="append",
        default=env.get("SANJAYA_DATA", "").split(),
        metavar="NAME=PATH[:ro]",
        help="data that jobs ask for by name (submit --mount NAME); repeat",
    )


def _node(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """What the node is for, and how its agent runs."""
    add = parser.add_argument
    add(
        "--pool",
        choices=features.POOLS,
        default=env.get("SANJAYA_POOL") or None,
        help="set this node apart: trial runs of wide jobs are placed here first, and no other job",
    )
    add(
        "--driver-checkpoint",
        action=argparse.BooleanOptionalAction,
        default=env.get("SANJAYA_DRIVER_CHECKPOINT") == "1",
        help="suspend processes without the harness by the NVIDIA driver (570 and later)",
    )
    add(
        "--on-exit",
        choices=("keep", "requeue"),
        default="keep",
        help="at an orderly exit: tasks go on and the next start adopts them, or end and their jobs are queued again",
    )
    add(
        "--heartbeat",
        type=float,
        metavar="SECONDS",
        help="between two signs of life (default: 2, or a sixth of what a lease holds where that is less)",
    )


def _lease(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """When tasks stop because the cell does not hear of the node; with --join the cell has the first two."""
    add = parser.add_argument
    add(
        "--node-timeout",
        type=float,
        default=env.get("SANJAYA_NODE_TIMEOUT_S", str(DEFAULT_LEASE.node_timeout_s)),
        metavar="SECONDS",
        help="a node that is silent so long, and the margin, is lost; as introspection has it",
    )
    add(
        "--lease-margin",
        type=float,
        default=env.get("SANJAYA_LEASE_MARGIN_S", str(DEFAULT_LEASE.margin_s)),
        metavar="SECONDS",
        help="tasks stop so long before the time-out; as introspection has it",
    )
    add(
        "--lease-grace",
        type=float,
        default=env.get("SANJAYA_LEASE_GRACE_S", str(DEFAULT_LEASE.grace_s)),
        metavar="SECONDS",
        help="how long they stand still, in case the node is heard of again, before they are killed",
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
