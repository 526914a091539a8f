"""Bursts of an owner's memory beside a guest: no task fails, the owner is whole again soon (AntMan, section 3.1.1)."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch_agent.harness.control import current_allowance
from torch_agent.pages import minibatches_done

from libs.contracts.agent import JobExited, JobStarted, MemoryBurst, NodeJoined
from libs.contracts.base import Event
from libs.coordination.settings import DEFAULTS
from libs.testing.builders import launch
from libs.testing.thorough import often
from tests.integration.agent_case import AgentCase

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the memory of virtual GPUs needs a C compiler")

MB = 1 << 20
CAPACITY = 200 * MB
OWNER_MB, GUEST_MB = 20, 100
SMALLEST, LARGEST = 0.2, 1.0
"""Of the GPU's memory, wanted by an owner during a burst; it has a tenth of it all the time, and its margin."""
BESIDE_MB = 2
"""What the owner's layer and batches need."""
BURSTS = often(4, thorough=1000)
MEDIAN_MOST, MOST = 3, 6
"""Mini-batches until an owner is whole again."""
SCRIPT = Path(__file__).with_name("bursting_script.py")


class Bursting:
    """An owner and a guest on the one GPU of an agent."""

    def __init__(self, case: AgentCase, folder: Path) -> None:
        self._case, self._folder = case, folder
        self.facts: list[Event] = []

    @property
    def records(self) -> Path:
        return self._folder / "n1" / "coordination" / "0"

    def folder(self, name: str) -> Path:
        folder = self._folder / f"of {name}"
        folder.mkdir(exist_ok=True)
        return folder

    async def begin(self, guest_s: float, *, waits_s: float = 1.0) -> None:
        """Both train, and the guest has what the owner leaves.

        Args:
            guest_s: rest of the guest in each mini-batch.
            waits_s: how long an owner's mini-batch waits for the guest's next one, at most.
        """
        await self._begin("guest", GUEST_MB, str(guest_s), role="guest")
        await self._begin("owner", OWNER_MB, str(self.records), str(waits_s))
        await self.leaves_to_guest()

    async def _begin(self, name: str, megabytes: int, *rest: str, **changes: str) -> None:
        command = [sys.executable, str(SCRIPT), str(self.folder(name)), str(megabytes), *rest]
        await self._case.order(launch(name, *command, **changes))
        await self.until(JobStarted)
        while minibatches_done(self._case.task_folder(name) / "pages") < 3:
            await asyncio.sleep(0.02)

    async def until(self, cls: type[Event]) -> Any:
        """The next fact of this kind. Whatever ends is said at once."""
        while True:
            fact = await self._case.next()
            assert fact is not None, f"no {cls.__name__} in time; facts: {self.facts}"
            self.facts.append(fact)
            if isinstance(fact, cls):
                return fact
            assert not isinstance(fact, JobExited), fact

    async def leaves_to_guest(self) -> None:
        """Until the owner has so little that all of these bursts exceed it."""
        folder = self._case.task_folder("owner") / "pages"
        while (limit := current_allowance(folder)[1].limit_at(0)) is None or limit > 0.9 * SMALLEST * CAPACITY:
            await asyncio.sleep(0.02)

    async def burst(self, part: float) -> MemoryBurst:
        """The owner wants that part of the GPU; returns when it has been whole again."""
        more = int(part * CAPACITY / MB) - OWNER_MB - BESIDE_MB
        self.wants(more)
        fact = await self.until(MemoryBurst)
        self.wants(0)
        return fact

    async def bursts(self, count: int) -> list[MemoryBurst]:
        """So many, one after the other: the largest, the smallest, and random ones."""
        chance = random.Random(1)
        parts = [LARGEST, SMALLEST, *(chance.uniform(SMALLEST, LARGEST) for _ in range(count - 2))]
        facts = []
        for part in parts:
            facts.append(await self.burst(part))
            await self.leaves_to_guest()
        return facts

    def wants(self, megabytes: int) -> None:
        path = self.folder("owner") / "more"
        path.with_suffix(".new").write_text(str(megabytes))
        path.with_suffix(".new").rename(path)

    async def end(self) -> None:
        for name in ("owner", "guest"):
            (self.folder(name) / "end").touch()
            fact = await self.until_exit(name)
            assert fact.exit_code == 0, fact

    async def until_exit(self, name: str) -> JobExited:
        while True:
            fact = await self._case.next()
            assert fact is not None
            if isinstance(fact, JobExited) and fact.job_id == name:
                return fact

    def steps(self) -> Iterator[tuple[float, dict[str, Any], dict[str, Any]]]:
        """Time, readings and step of each line on record."""
        for path in sorted(self.records.glob("*.jsonl")):
            for line in path.read_bytes().splitlines()[1:]:
                now_s, readings, step = json.loads(line)
                yield now_s, readings, step


def most_allowed(found: Iterator[tuple[float, dict[str, Any], dict[str, Any]]]) -> tuple[int, int, int]:
    """From the records alone, at any step: the most that all tasks together may have had, or had, and how many steps.

    A task may have what the largest limit allows that it was told since the one that it has applied, that one included;
    none after the last step that has seen its processes, which have ended then.
    """
    steps = list(found)
    last = {
        f"{task['job_id']}.{task['attempt']}": number
        for number, (_, readings, _) in enumerate(steps)
        for task in readings.get("tasks", ())
        if task.get("limited", True)
    }
    told: dict[str, dict[int, int]] = {}
    allowed = had = count = 0
    for number, (_, readings, step) in enumerate(steps):
        count += 1
        present = {f"{task['job_id']}.{task['attempt']}": task for task in readings.get("tasks", ())}
        present = {task: seen for task, seen in present.items() if number <= last.get(task, -1)}
        told = {task: limits for task, limits in told.items() if task in present}
        for action in step["actions"]:
            if action["action"] == "set_limit" and action["task"] in present:
                limit = action["limit_bytes"]
                told.setdefault(action["task"], {})[action["change"]] = CAPACITY if limit is None else limit
        for task, limits in told.items():
            applied = max((change for change in limits if change <= present[task].get("applied", 0)), default=0)
            told[task] = {change: limit for change, limit in limits.items() if change >= applied}
        begun = {task for task, seen in present.items() if seen.get("begun", True)}
        allowed = max(allowed, sum(max(limits.values()) for task, limits in told.items() if task in begun))
        had = max(had, sum(seen.get("device_bytes", 0) for task, seen in present.items() if task in begun))
    return allowed, had, count


@pytest.mark.thorough
@pytest.mark.timeout(3 * 3600)  # a thousand of them, some seconds each
async def test_owners_are_whole_again_after_bursts(tmp_path: Path):
    environment = {"SANJAYA_PEAK_S": "1"}
    async with AgentCase(tmp_path, virtual_gpus=1, gpu_memory_bytes=CAPACITY, environment=environment) as case:
        await case.fact(NodeJoined)
        both = Bursting(case, tmp_path)
        await both.begin(guest_s=0.02, waits_s=2 * DEFAULTS.yield_s)  # a guest that is starved of CPU breaks nothing
        facts = await both.bursts(BURSTS)
        await both.end()
    assert {(fact.job_id, *fact.from_jobs) for fact in facts} == {("owner", "guest")}
    broken = [fact.minibatches for fact in facts]
    assert statistics.median(broken) <= MEDIAN_MOST and max(broken) <= MOST, broken
    allowed, had, count = most_allowed(both.steps())
    assert count > 10 * BURSTS and max(allowed, had) <= CAPACITY


async def test_an_owner_does_not_wait_for_a_guest_with_long_mini_batches(tmp_path: Path):
    environment = {"SANJAYA_PEAK_S": "1"}
    async with AgentCase(tmp_path, virtual_gpus=1, gpu_memory_bytes=CAPACITY, environment=environment) as case:
        await case.fact(NodeJoined)
        both = Bursting(case, tmp_path)
        await both.begin(guest_s=5.0)
        await both.burst(0.9)
        await both.end()
    breaks = [now_s for now_s, readings, _ in both.steps() if on_host(readings, "owner")]
    assert breaks and max(breaks) - min(breaks) <= 2 * DEFAULTS.yield_s


def on_host(readings: dict[str, Any], job_id: str) -> bool:
    return any(task["job_id"] == job_id and task.get("minibatch_host_bytes", 0) for task in readings.get("tasks", ()))
