"""The environment of a task's processes: what torchrun sets, and what users of other schedulers look for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from libs.contracts.placement import LaunchTask


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
    gpu_memory_bytes: int,
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
        gpu_memory_bytes: of one GPU.
    """
    local_ranks = range(len(order.gpu_indices)) if order.launcher == "ranks" else range(1)
    common = {
        **base,
        "PATH": _joined(interpreter_dir, base.get("PATH", "")),
        "PYTHONUNBUFFERED": "1",
        **order.env,
        "PYTHONPATH": _joined(inject_path, order.env.get("PYTHONPATH", base.get("PYTHONPATH", ""))),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(uuid for uuid in gpu_uuids if uuid),
        "MASTER_ADDR": rendezvous[0],
        "MASTER_PORT": str(rendezvous[1]),
        "WORLD_SIZE": str(order.world_size),
        "LOCAL_WORLD_SIZE": str(len(order.gpu_indices)),
        "GROUP_RANK": str(order.node_rank),
        "NNODES": str(order.node_count),
        "SANJAYA_JOB_ID": order.job_id,
        "SANJAYA_JOB_NAME": order.name,
        "SANJAYA_ATTEMPT": str(order.attempt),
        "SANJAYA_TENANT": order.tenant,
        "SANJAYA_CHECKPOINT_DIR": checkpoint_dir,
        "SANJAYA_HARNESS_DIR": harness_dir,
        "SANJAYA_REPORTS": reports,
        "SANJAYA_GPU_MEMORY_LIMIT_BYTES": str(gpu_memory_bytes),
        "SLURM_JOB_ID": order.job_id,
        "SLURM_NTASKS": str(order.world_size),
    }
    if order.restores:
        common["SANJAYA_RESTORES"] = harness_dir
    if order.virtual_ranks is not None:
        common["SANJAYA_VIRTUAL_RANKS"] = str(order.virtual_ranks)
    if not any(gpu_uuids):
        common.setdefault("OMP_NUM_THREADS", "1")  # a virtual GPU is about one core
    return [_with_rank(common, order.first_rank + local_rank, local_rank) for local_rank in local_ranks]


def _with_rank(common: Mapping[str, str], rank: int, local_rank: int) -> dict[str, str]:
    return {
        **common,
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local_rank),
    }


def _joined(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first
