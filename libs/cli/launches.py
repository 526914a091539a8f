"""How a job will be launched, in words: said when it is submitted."""

from __future__ import annotations

from typing import Any

from libs.kernel.launchers import PER_GPU, PER_NODE, said, starts_ranks

NAMES = {"per-gpu": PER_GPU, "per-node": PER_NODE}


def launch_of(request: dict[str, Any]) -> str:
    """How many processes there will be; empty where that goes without saying, or the gateway has to judge first."""
    written, gpus = request["command"], _count(request.get("gpus", 1))
    command = ["/bin/sh", "-c", written] if isinstance(written, str) else written
    if gpus is None or not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return ""
    given = request.get("launcher") or (PER_NODE if starts_ranks(command) is not None else PER_GPU)
    return said(NAMES.get(given, given), command, gpus)


def _count(gpus: Any) -> int | None:
    """Of the GPUs that are asked for, in any form of a request; None: it has none."""
    if isinstance(gpus, dict):
        gpus = gpus.get("count", 1)
    number = str(gpus).rpartition(":")[2]
    return int(number) if number.isdecimal() else None
