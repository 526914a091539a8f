"""What machine this is, as far as the agent's mechanisms depend on it. Nothing here fails where something is absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch_agent.driver.interface import Driver


def facts() -> dict[str, Any]:
    """Driver, torch, memory for parked jobs, the driver's checkpoint interface."""
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "virtual GPU",
        "driver": _driver(),
        "context_bytes": _context_bytes(),
        "shm_bytes": shutil.disk_usage("/dev/shm").total if Path("/dev/shm").exists() else 0,
        "cgroup_v2_writable": os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK),
        "driver_checkpoint": Driver.load() is not None,
    }


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception as error:
        return f"none ({type(error).__name__})"


def _context_bytes() -> int:
    """GPU memory of a process that has done nothing but begin."""
    if not torch.cuda.is_available():
        return 0
    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free
