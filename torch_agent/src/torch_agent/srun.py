"""`srun` in a batch script: starts the ranks on this node, as Slurm's would.

Standard library only. A batch script runs once on each node of its gang, and so does each `srun` in it: together they
start the ranks of all nodes. Without a number there is a rank per GPU. The ranks stay in the script's process group:
what the agent tells the task reaches them without this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

PR_SET_PDEATHSIG = 1
USAGE = 2
UNDERSTOOD = {
    "-n": "ntasks",
    "--ntasks": "ntasks",
    "--ntasks-per-node": "ntasks_per_node",
    "-N": "nodes",
    "--nodes": "nodes",
}
LEFT_OUT_WITH_VALUE = (
    *(
        "-c",
        "--cpus-per-task",
        "--gpus",
        "-G",
        "--gpus-per-task",
        "--gpus-per-node",
        "--gres",
        "--mem",
        "--mem-per-gpu",
    ),
    *("--mem-per-cpu", "-t", "--time", "-J", "--job-name", "-p", "--partition", "-A", "--account", "--mpi", "-w"),
    *("--nodelist", "--ntasks-per-gpu", "--threads-per-core", "--hint", "-D", "--chdir", "--jobid", "--distribution"),
    *("-m", "-o", "--output", "-e", "--error", "-i", "--input"),
)
"""Options with a value that may be the next word."""
LEFT_OUT = (
    *("-l", "--label", "-u", "--unbuffered", "-K", "--kill-on-bad-exit", "-v", "--verbose", "-Q", "--quiet"),
    *("--exclusive", "--overlap", "--exact", "-s", "--oversubscribe", "--cpu-bind", "--gpu-bind", "--mem-bind"),
    *("--export", "--wait", "-W", "--accel-bind"),
)


class Refused(Exception):
    """The command line cannot be followed; the message says what was seen and what was expected."""


@dataclass(frozen=True)
class Ranks:
    """Those that are started here."""

    first: int
    here: int
    world_size: int
    nodes: int


def parse(words: list[str]) -> tuple[dict[str, int], list[str], list[str]]:
    """{what is said: number}, the options that are left out, and the command.

    Raises:
        Refused: an option is unknown, or has no sensible value.
    """
    said: dict[str, int] = {}
    left_out: list[str] = []
    words = list(words)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not name.startswith("--") and len(name) > 2:
            name, equals, value = name[:2], "=", name[2:]  # -n4
        if name in UNDERSTOOD:
            value = value if equals else words.pop(0) if words else ""
            if not value.isdecimal() or int(value) < 1:
                raise Refused(f"{name} {value!r}: expected a number, 1 or more")
            said[UNDERSTOOD[name]] = int(value)
        elif name in LEFT_OUT_WITH_VALUE:
            if not equals and words:
                words.pop(0)
            left_out.append(name)
        elif name in LEFT_OUT:
            left_out.append(name)
        else:
            raise Refused(f"{word}: expected -n, --ntasks-per-node or -N, or an option of Slurm that can be left out")
    if not words:
        raise Refused("no command; expected srun [options] COMMAND")
    return said, left_out, words


def ranks(said: Mapping[str, int], environment: Mapping[str, str]) -> Ranks | None:
    """The ranks of this node; None: there are none here.

    Args:
        said: on the command line; what is not said there stands in the environment, as `#SBATCH` lines have put it.
        environment: of the batch script.

    Raises:
        Refused: the numbers contradict each other, or the gang.
    """
    all_nodes, node = int(environment.get("SLURM_NNODES", "1")), int(environment.get("SLURM_NODEID", "0"))
    gpus_here = int(environment.get("SLURM_GPUS_ON_NODE", "1"))
    first_gpu, gpus = int(environment.get("SANJAYA_RANK", "0")), int(environment.get("SANJAYA_WORLD_SIZE", gpus_here))
    nodes = said.get("nodes", all_nodes)
    if nodes > all_nodes:
        raise Refused(f"-N {nodes}, but the job has {all_nodes} nodes")
    total = said.get("ntasks") or (None if "ntasks_per_node" in said else _number(environment, "SLURM_NTASKS"))
    per_node = said.get("ntasks_per_node") or _number(environment, "SLURM_NTASKS_PER_NODE")
    if total is None and per_node is not None:
        total = per_node * nodes
    if total is None or (total == gpus and nodes == all_nodes):
        # A rank per GPU: also where the gang has more GPUs on one node than on another.
        if nodes == all_nodes:
            return Ranks(first=first_gpu, here=gpus_here, world_size=gpus, nodes=nodes)
        total = gpus_here * nodes
    if total % nodes:
        raise Refused(f"{total} ranks on {nodes} nodes; expected equally many on each")
    here = total // nodes
    return Ranks(first=node * here, here=here, world_size=total, nodes=nodes) if node < nodes else None


def rank_environment(
    found: Ranks, local_rank: int, environment: Mapping[str, str], port: int | None = None
) -> dict[str, str]:
    """Of one rank; a rank that is alone is told no RANK, as everywhere.

    Args:
        port: where the ranks of this `srun` meet; None: where the gang does.
    """
    rank = found.first + local_rank
    told = {
        **environment,
        "SANJAYA_RANK": str(rank),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NTASKS": str(found.world_size),
        "SLURM_NTASKS_PER_NODE": str(found.here),
        "SLURM_NPROCS": str(found.world_size),
        "SLURM_STEP_NUM_TASKS": str(found.world_size),
        "SLURM_STEP_NUM_NODES": str(found.nodes),
    }
    if found.world_size > 1:
        told |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(found.world_size),
            "LOCAL_WORLD_SIZE": str(found.here),
        }
    if port is not None:
        told["MASTER_PORT"] = str(port)
    return told


def main(words: list[str]) -> int:
    """Start the ranks, and wait for them. Returns the highest of their exit statuses."""
    try:
        said, left_out, command = parse(words)
        found = ranks(said, os.environ)
    except Refused as error:
        print(f"srun: {error}", file=sys.stderr)
        return USAGE
    if left_out:
        print(f"srun: {', '.join(left_out)}: not known here, left out", file=sys.stderr)
    if found is None:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: None)  # the ranks have heard it, too: this process ends after them
    # Several may run beside each other in one script, so each has a port of its own where no other node must know it.
    port = _free_port() if found.nodes == 1 else None
    libc = ctypes.CDLL(None, use_errno=True)

    def in_the_child() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    processes: list[subprocess.Popen[bytes]] = []
    try:
        for local_rank in range(found.here):
            environment = rank_environment(found, local_rank, os.environ, port)
            processes.append(subprocess.Popen(command, env=environment, preexec_fn=in_the_child))
    except OSError as error:
        print(f"srun: cannot start {command[0]!r}: {error}", file=sys.stderr)
        for process in processes:
            process.kill()
        return 127
    return _status(processes)


def _status(processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait for all; when one ends badly the others are asked to end, too: they would wait for it."""
    statuses: dict[int, int] = {}
    running = {process.pid: process for process in processes}
    while running:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        statuses[pid] = 128 - code if code < 0 else code
        running.pop(pid, None)
        if code != 0:
            for process in running.values():
                process.terminate()
    return max(statuses.values())


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
