"""From an order to a running shim."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from libs.contracts.cluster import GpuInfo
from libs.contracts.placement import LaunchTask
from torch_agent.code import CodeUnavailable, unpack
from torch_agent.environment import rank_environments
from torch_agent.folders import TaskFolder
from torch_agent.harness import inject_path
from torch_agent.harness.control import turn_to
from torch_agent.options import Options

AGENTS_OWN = ("SANJAYA_", "OTEL_")
"""Prefixes of variables that are for the agent and not for the tasks."""
PROGRAM_BYTES = 6 << 30
"""What a process with torch maps privately before it allocates anything of its own, generously."""


class Launcher:
    """Starts shims."""

    def __init__(self, options: Options, gpus: list[GpuInfo]) -> None:
        self._options = options
        self._gpus = {gpu.index: gpu for gpu in gpus}
        self._base = {k: v for k, v in os.environ.items() if not k.startswith(AGENTS_OWN)}

    async def launch(self, order: LaunchTask, folder: TaskFolder) -> subprocess.Popen[bytes] | None:
        """Start the task's shim; when the task cannot be started, leave that as its result and return None."""
        folder.make()
        if order.restores:
            turn_to(folder.pages, suspend=True)
        try:
            if order.code_id is not None:
                cache = self._options.state_dir / "code"
                await asyncio.to_thread(unpack, order.code_id, self._options.gateway, cache, folder.work)
            return folder.start_shim(self._spec(order, folder))
        except (CodeUnavailable, OSError) as error:
            folder.refuse(str(error))
            return None

    def checkpoints(self, job_id: str) -> Path:
        """Kept over the job's attempts."""
        return self._options.checkpoint_dir / job_id

    def _spec(self, order: LaunchTask, folder: TaskFolder) -> dict[str, Any]:
        gpus = [self._gpus[index] for index in order.gpu_indices]
        checkpoints = self.checkpoints(order.job_id)
        checkpoints.mkdir(parents=True, exist_ok=True)
        virtual = not any(gpu.uuid for gpu in gpus)
        environments = rank_environments(
            order,
            base=self._base,
            gpu_uuids=[gpu.uuid for gpu in gpus],
            rendezvous=_rendezvous(order),
            checkpoint_dir=str(checkpoints),
            harness_dir=str(folder.pages),
            reports=str(folder.reports),
            inject_path=inject_path(),
            interpreter_dir=str(Path(sys.executable).parent),
            gpu_memory_bytes=gpus[0].memory_bytes,
        )
        return {
            "command": order.command,
            "cwd": order.working_dir or str(folder.work),
            "environments": environments,
            "time_limit_s": order.time_limit_s,
            "data_limit_bytes": _data_limit(order, gpus) if virtual else 0,
            "nice": 5 if virtual else 0,
        }


def _data_limit(order: LaunchTask, gpus: list[GpuInfo]) -> int:
    """What one process may map privately: its GPUs' memory, and what the program itself takes."""
    per_process = 1 if order.launcher == "ranks" else len(gpus)
    return gpus[0].memory_bytes * per_process + PROGRAM_BYTES


def _rendezvous(order: LaunchTask) -> tuple[str, int]:
    """Where the gang meets: as ordered, or on a port of this node that is free now."""
    if order.rendezvous_host is not None and order.rendezvous_port is not None:
        return order.rendezvous_host, order.rendezvous_port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1", probe.getsockname()[1]
