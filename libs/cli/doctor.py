"""Looks at the cell and at this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from libs.client import Client, ClientError

LEAST_FREE_BYTES = 2 << 30
MOST_LAG = 1000


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    detail: str
    fix: str = ""
    optional: bool = False
    """Not being there is no fault."""


def examine(gateway: str) -> list[Finding]:
    """Everything, the cell first."""
    return [*_cell(gateway), *_machine()]


def _cell(gateway: str) -> Iterator[Finding]:
    try:
        with Client(gateway) as cell:
            status, nodes = cell.status(), cell.nodes()
    except ClientError as error:
        yield Finding("gateway", False, str(error), "sanjaya up, or --gateway URL")
        return
    yield Finding("gateway", True, f"{gateway}, cell {status['cell']}")
    yield Finding(
        "read models",
        status["lag"] <= MOST_LAG,
        f"{status['lag']} events behind the log (at {status['next_offset']})",
        "look at the projection's log; python -m services.projection --rebuild",
    )
    yield _conservation(status["conservation"])
    away = [node["id"] for node in nodes if node["state"] == "LOST"]
    yield Finding(
        "agents",
        bool(nodes) and not away,
        f"{len(nodes)} nodes" + (f", lost: {', '.join(away)}" if away else ""),
        "sanjaya agent --bus … --node-id … on the node",
    )
    oldest = status["oldest_waiting"]
    if oldest:
        yield Finding("oldest waiting job", True, f"{oldest['id']}: {oldest['reason']}  (sanjaya why {oldest['id']})")


def _conservation(light: dict[str, Any]) -> Finding:
    """Every job in exactly one state, every GPU accounted for."""
    broken = [violation for law in light["laws"] for violation in law["violations"]]
    checked = ", ".join(f"{law['name']}: {law['checked']}" for law in light["laws"])
    return Finding(
        "conservation",
        light["light"] != "red",
        f"{light['light']}  {'; '.join(broken[:3]) or checked}",
        "sanjaya replay --verify, and report what it finds",
    )


def _machine() -> Iterator[Finding]:
    free = shutil.disk_usage(Path.home()).free
    yield Finding("disk", free > LEAST_FREE_BYTES, f"{free / 2**30:.0f} GiB free at home", "make room, or --state-dir")
    yield Finding("python", sys.version_info >= (3, 11), sys.version.split()[0], "Python 3.11 or later")
    yield _found("torch", find_spec("torch") is not None, "pip install torch")
    yield _found("java", shutil.which("java") is not None, "Java 17, for a Kafka broker of the cell's own", _java)
    yield _found("mvn", shutil.which("mvn") is not None, "Maven, for the same")
    yield _found("nvidia driver", shutil.which("nvidia-smi") is not None, "only for real GPUs")


def _found(what: str, there: bool, fix: str, detail: Callable[[], str] = lambda: "found") -> Finding:
    return Finding(what, there, detail() if there else "not found (needed only for some things)", fix, optional=True)


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (said.stderr or said.stdout).splitlines()[0]
