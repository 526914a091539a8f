"""The environment of a task's processes: what torchrun sets, and what users of other schedulers look for.

Ranks are told their place where there are several, or where there may be: a process that is alone, or that starts the
ranks itself, would take RANK and WORLD_SIZE for the word of a launcher, and wait for ranks that never come.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from libs.contracts.placement import LaunchTask
from libs.kernel.launchers import PER_GPU, Place, torchrun_variables
from torch_agent.environments.activation import Activation
from torch_agent.harness.memory.limiting import SCALES

_OF_A_RANK = frozenset(
    (
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "NNODES"),
        *("MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
        *("SANJAYA_REPORTS", "SANJAYA_RESTORES", "SANJAYA_VIRTUAL_RANKS"),
        *("SANJAYA_LOSS_METRIC", "SANJAYA_EPOCH_LOSSES", "SANJAYA_TRIAL_STEPS", SCALES),
    )
)
"""What tells a process its place in a gang, and where its reports and the state that it takes over are."""
_OF_TORCHRUN = "PET_"
_PRELOAD, _PRELOADED = "LD_PRELOAD", "SANJAYA_PRELOADED"
"""What the dynamic linker loads first, and which part of it is the agent's."""


def rank_environments(
    order: LaunchTask,
    *,
    base: Mapping[str, str],
    gpu_uuids: Sequence[str],
    rendezvous: tuple[str, int],
    checkpoint_dir: str,
    harness_dir: str,
    reports: str,
    inject_path: str,
    interpreter_dir: str,
    commands_dir: str,
    activation: Activation,
    gpu_memory_bytes: int,
    share_cpus: int,
) -> list[dict[str, str]]:
    """One environment per process of the task.

    Args:
        base: the agent's own environment, without what belongs to the agent alone.
        gpu_uuids: of the task's GPUs, in the order of its ranks; empty strings for virtual GPUs.
        rendezvous: host and port where the gang meets.
        checkpoint_dir: kept over the job's attempts.
        harness_dir: where the harness leaves its pages.
        reports: the file that the script's reports are appended to.
        inject_path: put first on PYTHONPATH, so that every Python process of the task gets the harness.
        interpreter_dir: put first on PATH: `python` is the interpreter that the agent runs on.
        commands_dir: put before that: `srun` is the agent's, also on the node of a Slurm cluster.
        activation: the environment that is active; its folders stand between the two on PATH.
        gpu_memory_bytes: of one GPU.
        share_cpus: the node's CPUs by its GPUs.
    """
    common = {
        **_defaults(order, gpu_uuids, share_cpus),
        **{name: value for name, value in base.items() if name not in activation.drops},
        "PATH": _joined(":".join((commands_dir, *activation.path, interpreter_dir)), base.get("PATH", "")),
        **activation.variables,
        "PYTHONUNBUFFERED": "1",
        **order.env,
        "PYTHONPATH": _joined(inject_path, order.env.get("PYTHONPATH", base.get("PYTHONPATH", ""))),
        **_gang(order, gpu_uuids, rendezvous),
        **_job(order),
        "SANJAYA_CHECKPOINT_DIR": checkpoint_dir,
        "SANJAYA_HARNESS_DIR": harness_dir,
        "SANJAYA_REPORTS": reports,
        "SANJAYA_GPU_MEMORY_LIMIT_BYTES": str(gpu_memory_bytes),
        **({"SANJAYA_RESTORES": harness_dir} if order.restores else {}),
        **_told_to_the_harness(order),
        **_as_slurm_says(order),
    }
    if order.launcher != PER_GPU:
        torchrun = torchrun_variables(order.command, place_of(order, gpu_uuids, rendezvous))
        starter = {"SANJAYA_RANK": str(order.first_rank), "SANJAYA_WORLD_SIZE": str(order.world_size)}
        return [{**torchrun, **common, **starter}]
    # An elastic job has had, or may get, more ranks: its script forms a process group also while it has one.
    alone = order.world_size == 1 and order.virtual_ranks is None
    return [
        {**common, "SANJAYA_RANK": str(order.first_rank + local_rank), **({} if alone else _ranked(order, local_rank))}
        for local_rank in range(len(order.gpu_indices))
    ]


def _defaults(order: LaunchTask, gpu_uuids: Sequence[str], share_cpus: int) -> dict[str, str]:
    """What holds unless the node's environment, or the job's, says otherwise."""
    # Without OMP_NUM_THREADS each rank would start as many threads as there are cores. A virtual GPU is about one.
    if any(gpu_uuids):
        return {"OMP_NUM_THREADS": str(order.cpus or share_cpus)}
    # Without ACCELERATE_USE_CPU, ranks of Accelerate do not meet where there is no GPU.
    return {"OMP_NUM_THREADS": str(order.cpus or 1), "ACCELERATE_USE_CPU": "true"}


def _gang(order: LaunchTask, gpu_uuids: Sequence[str], rendezvous: tuple[str, int]) -> dict[str, str]:
    """The task's GPUs, its place in its gang, and where that meets."""
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(uuid for uuid in gpu_uuids if uuid),
        "MASTER_ADDR": rendezvous[0],
        "MASTER_PORT": str(rendezvous[1]),
        "GROUP_RANK": str(order.node_rank),
        "NODE_RANK": str(order.node_rank),
        "NNODES": str(order.node_count),
    }


def _job(order: LaunchTask) -> dict[str, str]:
    return {
        "SANJAYA_JOB_ID": order.job_id,
        "SANJAYA_JOB_NAME": order.name,
        "SANJAYA_ATTEMPT": str(order.attempt),
        "SANJAYA_TENANT": order.tenant,
    }


def _told_to_the_harness(order: LaunchTask) -> dict[str, str]:
    """What the harness does beside its usual: losses of epochs, the end of a trial, virtual ranks."""
    told = {}
    if order.when_converged:
        told["SANJAYA_LOSS_METRIC"] = order.loss_metric
        if not order.loss_line:
            told["SANJAYA_EPOCH_LOSSES"] = "1"
    if order.trial_steps is not None:
        told["SANJAYA_TRIAL_STEPS"] = str(order.trial_steps)
    if order.virtual_ranks is not None:
        told["SANJAYA_VIRTUAL_RANKS"] = str(order.virtual_ranks)
    return told


def _as_slurm_says(order: LaunchTask) -> dict[str, str]:
    """The same for scripts that were written for Slurm."""
    said = {
        "SLURM_JOB_ID": str(zlib.crc32(order.job_id.encode())),  # a number, as Slurm has them: Lightning counts with it
        "SLURM_JOB_NAME": order.name,
        "SLURM_JOB_NUM_NODES": str(order.node_count),
        "SLURM_NNODES": str(order.node_count),
        "SLURM_NODEID": str(order.node_rank),
        "SLURM_GPUS_ON_NODE": str(len(order.gpu_indices)),
    }
    if order.cpus is not None:
        said |= {"SLURM_CPUS_PER_GPU": str(order.cpus), "SLURM_CPUS_PER_TASK": str(order.cpus)}
    if order.memory_bytes is not None:
        said["SLURM_MEM_PER_GPU"] = str(order.memory_bytes // 2**20)
    return said


def limited(environment: Mapping[str, str], library: Path | None) -> dict[str, str]:
    """The same for a process whose memory on its GPUs is limited by its harness; without one nothing would be.

    Args:
        environment: of the process.
        library: preloaded into it, before what its user has preloaded: what both replace goes from one to the other.
            None: nothing is.
    """
    if environment.get("SANJAYA_HARNESS") == "0":
        return dict(environment)
    if library is None:
        return {**environment, SCALES: "1"}
    preloaded = _joined(str(library), environment.get(_PRELOAD, ""))
    return {**environment, SCALES: "1", _PRELOADED: str(library), _PRELOAD: preloaded}


def session_environment(environment: Mapping[str, str], *, session_id: str, term: str | None) -> dict[str, str]:
    """That of a command which a user starts beside a rank: the same, but for what would make it one.

    It keeps SANJAYA_HARNESS_DIR, by which all processes of a task are found when the task is suspended or ends.

    Args:
        environment: of the rank.
        term: the kind of the terminal that it has; None: it has none.
    """
    kept = {k: v for k, v in environment.items() if k not in _OF_A_RANK and not k.startswith(_OF_TORCHRUN)}
    if library := kept.pop(_PRELOADED, ""):
        users = kept.pop(_PRELOAD, "").removeprefix(library).removeprefix(":")
        kept |= {_PRELOAD: users} if users else {}
    return {
        **kept,
        "SANJAYA_HARNESS": "0",
        "SANJAYA_SESSION": session_id,
        **({"TERM": term} if term is not None else {}),
    }


def place_of(order: LaunchTask, gpu_uuids: Sequence[str], rendezvous: tuple[str, int]) -> Place:
    """The task's part of the gang, as launchers are told it; arguments as for `rank_environments`."""
    return Place(
        gpus=len(order.gpu_indices),
        world_size=order.world_size,
        node_rank=order.node_rank,
        nodes=order.node_count,
        host=rendezvous[0],
        port=rendezvous[1],
        virtual=not any(gpu_uuids),
    )


def _ranked(order: LaunchTask, local_rank: int) -> dict[str, str]:
    rank, local_ranks = order.first_rank + local_rank, len(order.gpu_indices)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(order.world_size),
        "LOCAL_WORLD_SIZE": str(local_ranks),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NTASKS": str(order.world_size),
        "SLURM_NTASKS_PER_NODE": str(local_ranks),  # Lightning refuses SLURM_NTASKS without it
    }


def _joined(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first
