"""Looks at the cell and at this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from libs.cli.installation import TORCH, command_to_add, has
from libs.client import Client, ClientError
from libs.kernel.clock import AHEAD_FROM_S
from libs.kernel.words import bytes_of, counted, off_by
from libs.runtime.roster import roster

LEAST_PYTHON = (3, 11, 4)
LEAST_FREE_BYTES = 2 << 30
MOST_LAG = 1000
NONE_STANDS = "no job is left standing"
"""The law of the gateway's that is about time, and not about books."""
STANDSTILL_S = 3.0
"""A service that is behind must have handled something within this time."""
LOOK_EVERY_S = 0.2
KERNEL_BOUNDS = {
    "cgroup": "a task's processes (a killed shim may leave some)",
    "memory": "host memory (looked at twice a second, files in /dev/shm not)",
    "pids": "number of processes",
}
"""{word in a node's `bounds_by`: what it is about, and what holds where it is missing}."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    detail: str
    fix: str = ""
    optional: bool = False
    """Not being there is no fault."""

    @property
    def mark(self) -> str:
        """`ok`, `BAD`, or `–` for what is missing and need not be there."""
        return "ok" if self.ok else "–" if self.optional else "BAD"


def examine(cell: Client) -> list[Finding]:
    """Everything, the cell first."""
    return [*_cell(cell), *_machine()]


def _cell(cell: Client) -> Iterator[Finding]:
    try:
        status, nodes = cell.status(), cell.nodes()
    except ClientError as error:
        yield Finding("gateway", False, str(error), "sanjaya up, or --gateway URL, or SANJAYA_TOKEN")
        return
    yield Finding("gateway", True, f"{cell.base_url}, cell {status['cell']}")
    yield Finding(
        "log",
        status["ready"],
        f"{counted(status['next_offset'], 'event')} on control",
        "look at the gateway's log: it cannot read or write the bus",
    )
    yield Finding(
        "read models",
        status["lag"] <= MOST_LAG,
        f"{counted(status['lag'], 'event')} behind the log",
        "look at the projection's log; python -m services.projection --rebuild",
    )
    yield from disks_of(status)
    yield from _services(cell)
    yield from light_of(status["conservation"])
    yield dead_letters(cell)
    yield _agents(nodes)
    yield from errors_of(nodes)
    yield from clocks_of(nodes)
    yield log_clock(cell)
    yield from bounds_of(nodes)
    oldest = status["oldest_waiting"]
    if oldest:
        yield Finding("oldest waiting job", True, f"{oldest['id']}: {oldest['reason']}  (sanjaya why {oldest['id']})")


def disks_of(status: dict[str, Any]) -> Iterator[Finding]:
    """The disks that the cell writes to; new work is refused while one of them is short."""
    for disk in status["disks"]:
        free = f"{bytes_of(disk['free_bytes'])} free at {disk['path']}"
        said = f"{free}: new jobs are refused" if disk["short"] else free
        fix = "make room there; `sanjaya archive` takes old events off the log"
        yield Finding(f"disk of the {disk['keeps']}", disk["free_bytes"] > LEAST_FREE_BYTES, said, fix)


def _services(cell: Client) -> Iterator[Finding]:
    """A service that is behind and does not come on is not at work."""
    names = roster().NAMES
    try:
        before = cell.positions()
        if before is None:
            yield Finding("services", True, "this log does not tell how far they are")
            return
        end = cell.status()["next_offset"]
        deadline_s = time.monotonic() + STANDSTILL_S
        now = before
        while any(_stands(name, before, now, end) for name in names) and time.monotonic() < deadline_s:
            time.sleep(LOOK_EVERY_S)
            now = cell.positions() or now
    except ClientError as error:
        yield Finding("services", False, str(error), "look at the gateway's log")
        return
    for name in names:
        stuck = _stands(name, before, now, end)
        yield Finding(name, not stuck, _distance(now.get(name), end, stuck), "look at its log, and start it again")


def _stands(name: str, before: Mapping[str, int], now: Mapping[str, int], end: int) -> bool:
    """Whether a service has handled nothing between two looks, and has something to handle."""
    position = now.get(name, 0)
    return position < end and position <= before.get(name, 0)


def _distance(position: int | None, end: int, stuck: bool) -> str:
    """How far a service is from the end of the log."""
    if position is None and end > 0:
        return "it has no position on the log: never started, or forgotten by the broker (doctor --bus kafka://…)"
    behind = max(end - (position or 0), 0)
    return f"{counted(behind, 'event')} behind" + (f", at a standstill for {STANDSTILL_S:g} s" if stuck else "")


def _agents(nodes: list[dict[str, Any]]) -> Finding:
    away = [node["id"] for node in nodes if node["state"] == "LOST"]
    idle = sum(node["free"] for node in nodes if node["state"] == "UP")
    return Finding(
        "agents",
        bool(nodes) and not away,
        f"{counted(len(nodes), 'node')}, {counted(idle, 'GPU')} free" + (f", lost: {', '.join(away)}" if away else ""),
        "sanjaya agent --bus … --node-id … on the node",
    )


def errors_of(nodes: list[dict[str, Any]]) -> Iterator[Finding]:
    """Agents that go on, and have logged errors since their start."""
    for node in nodes:
        if node["state"] != "LEFT" and node["errors"]:
            said = f"{counted(node['errors'], 'error')} in its log, the last one: {node['last_error']}"
            yield Finding(f"agent {node['id']}", False, said, f"look at the log of the agent on {node['id']}")


def bounds_of(nodes: list[dict[str, Any]]) -> Iterator[Finding]:
    """Of each kind of node that is there: what the kernel holds tasks to, and what it does not."""
    kinds: dict[str, list[str]] = {}
    for node in nodes:
        if node["state"] not in ("LOST", "LEFT") and node["bounds_by"].startswith("affinity"):
            kinds.setdefault(node["bounds_by"], []).append(node["id"])
    for bounds_by, ids in sorted(kinds.items()):
        missing = [words for bound, words in KERNEL_BOUNDS.items() if bound not in bounds_by.split("+")]
        said = f"not bounded by the kernel: {'; '.join(missing)}" if missing else "all by the kernel"
        fix = "run the agent where it may make groups of cgroup v2 (systemd: Delegate=), or sanjaya agent --cgroup PATH"
        yield Finding("bounds of tasks", not missing, f"{', '.join(sorted(ids))}: {said}", fix, optional=True)


def clocks_of(nodes: list[dict[str, Any]]) -> Iterator[Finding]:
    """Nodes whose clock is off by 2 s or more. Nothing is decided by it: dates in their files and lines are wrong."""
    for node in nodes:
        if node["state"] != "LEFT" and node.get("clock_skew_s"):
            said = f"{off_by(node['clock_skew_s'])} of the log's; nothing is decided by it"
            yield Finding(f"clock of {node['id']}", False, said, f"set the clock of {node['id']}: NTP, chrony")


def log_clock(cell: Client) -> Finding:
    """Services whose present is in the future wait for moments that do not come."""
    try:
        ahead_s = cell.clock()["ahead_s"]
    except ClientError as error:
        return Finding("log's clock", False, str(error), "look at the gateway's log")
    if ahead_s < AHEAD_FROM_S:
        return Finding("log's clock", True, "the services go by it")
    said = f"the services' decisions are dated {off_by(ahead_s)} of it: a node's clock was taken for it once"
    return Finding("log's clock", False, said, "sanjaya repair-clock --reason …")


def light_of(light: dict[str, Any]) -> Iterator[Finding]:
    """Every job in exactly one state, every GPU accounted for; and no job left standing, as introspection has found."""
    books = [law for law in light["laws"] if law["name"] != NONE_STANDS]
    broken = [violation for law in books for violation in law["violations"]]
    checked = ", ".join(f"{law['name']}: {law['checked']}" for law in books)
    color = "red" if broken else "green" if books else light["light"]
    yield Finding(
        "conservation",
        not broken,
        f"{color}  {'; '.join(broken[:3]) or checked}",
        "sanjaya replay --verify, and report what it finds",
    )
    for law in light["laws"]:
        if law["name"] == NONE_STANDS:
            none = f"none of {counted(law['checked'], 'job')} is left standing"
            yield Finding(
                "stuck jobs",
                law["holds"],
                "; ".join(law["violations"]) or none,
                "sanjaya why JOB says of whom what is awaited: look at the log of that service or agent",
            )


def dead_letters(cell: Client) -> Finding:
    """Records that a service could not take: impossible in its state, or not to be read."""
    try:
        found = cell.dead_letters(limit=1)
    except ClientError as error:
        return Finding("dead letters", False, str(error), "look at the gateway's log")
    if not found["total"]:
        return Finding("dead letters", True, "0")
    [newest] = found["items"]
    service, job = newest["service"], newest["job_id"]
    fix = f"sanjaya story {job}" if job else f"look at the log of {service}: it could not take {newest['record']}"
    return Finding("dead letters", False, f"{found['total']}, the newest of {service}: {newest['error']}", fix)


def _machine() -> Iterator[Finding]:
    least = ".".join(map(str, LEAST_PYTHON))
    yield Finding("python", sys.version_info >= LEAST_PYTHON, sys.version.split()[0], f"Python {least} or later")
    yield _found("torch", has("torch"), f"{command_to_add(TORCH)}, for training jobs", _torch)
    yield _found("java", shutil.which("java") is not None, "Java 17, for a Kafka broker of the cell's own", _java)
    yield _found("mvn", shutil.which("mvn") is not None, "Maven, for the same")
    yield _found("nvidia driver", shutil.which("nvidia-smi") is not None, "only for real GPUs")


def _found(what: str, there: bool, fix: str, detail: Callable[[], str] = lambda: "found") -> Finding:
    return Finding(what, there, detail() if there else "not found (needed only for some things)", fix, optional=True)


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (said.stderr or said.stdout).splitlines()[0]


def _torch() -> str:
    return version("torch")
