"""What machine this is, as far as the agent's mechanisms depend on it. Nothing here fails where something is absent."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import torch

CHECKPOINT_CALLS = ("Lock", "Checkpoint", "Restore", "Unlock", "GetState")


def facts() -> dict[str, Any]:
    """Driver, torch, memory for parked jobs, the driver's checkpoint interface."""
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "virtual GPU",
        "driver": _driver(),
        "context_bytes": _context_bytes(),
        "shm_bytes": shutil.disk_usage("/dev/shm").total if Path("/dev/shm").exists() else 0,
        "cgroup_v2_writable": os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK),
        "driver_checkpoint": _driver_checkpoint(),
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


def _driver_checkpoint() -> str:
    """Which calls of the driver's checkpoint interface the bindings have."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "no bindings"
    from cuda.bindings import driver

    found = [name for name in CHECKPOINT_CALLS if hasattr(driver, f"cuCheckpointProcess{name}")]
    return ", ".join(found) or "not in these bindings"
