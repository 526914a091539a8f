"""From the harness's pages to telemetry."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from libs.bus import codec
from libs.bus.port import Bus, BusUnavailable, Refused
from libs.contracts.agent import (
    GpuCoordinated,
    GpuRecovered,
    GpuSampled,
    GpuUnhealthy,
    MinibatchProfiled,
    NodeErrorsLogged,
    NodeHeartbeat,
    source_of,
)
from libs.contracts.base import Event
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.kernel.ids import request_id
from libs.node.task import Task
from torch_agent.clock import now_s
from torch_agent.complaints import Complaints
from torch_agent.coordinating.changes import Changes
from torch_agent.coordinating.readings import FIRST_PAGE_S, gpu_of, pages_on
from torch_agent.harness.page import PageReading
from torch_agent.leasing import Leasing
from torch_agent.pages import pages
from torch_agent.probes.gpus import NO_OTHERS, GpuFacts, GpuReading
from torch_agent.probes.host import HostProbe
from torch_agent.processes import lives
from torch_agent.shim import boottime_s
from torch_agent.watching import Watching

log = logging.getLogger(__name__)

APPEND_TIMEOUT_S = 5.0
ERRORS_EVERY_S = 60.0
"""How often it is said at most that the agent has logged errors."""


class _Mark(NamedTuple):
    """How far a rank was, and when; None: it stood still then."""

    minibatches: int
    at_s: float | None


class Meter:
    """Remembers the last record per rank, and makes the next one of what was done since."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], _Mark] = {}

    def measure(
        self,
        task: Task,
        readings: Sequence[PageReading],
        utilisations: Mapping[int, float],
        now_s: float,
        *,
        leased: bool = True,
    ) -> list[MinibatchProfiled]:
        """One record per rank that has done something since its last record.

        Args:
            task: the task.
            readings: its pages.
            utilisations: {GPU index: utilisation ratio}, as last seen.
            now_s: by the agent's clock.
            leased: tasks may run; else they stand still.
        """
        records = []
        for reading in readings:
            last = self._last.get((task.key, reading.rank))
            if not (task.runs and leased):
                last = _Mark(reading.minibatches_total, None)
            elif last is None:
                last = _first_mark(reading, now_s)
            elif last.at_s is None:  # it stood still; what it did before it went on is not measured
                last = _Mark(reading.minibatches_total, now_s)
            if last is None:
                continue
            if last.at_s is not None and reading.minibatches_total > last.minibatches:
                fresh = reading.minibatches_total - last.minibatches
                records.append(_record(task, reading, fresh, now_s - last.at_s, _of_rank(task, reading, utilisations)))
                last = _Mark(reading.minibatches_total, now_s)
            self._last[task.key, reading.rank] = last
        return records

    def forget(self, active: Sequence[Task]) -> None:
        """Drop what belongs to tasks that have ended."""
        keys = {task.key for task in active}
        self._last = {key: value for key, value in self._last.items() if key[0] in keys}


class Telemetry:
    """Sends records every second and heartbeats now and then.

    What cannot be sent is dropped, as it is soon stale; changes of what tasks may have are sent the next time.
    """

    def __init__(
        self,
        bus: Bus,
        node_id: str,
        incarnation: Callable[[], int],
        gpus: GpuFacts,
        *,
        active: Callable[[], list[Task]],
        pages_of: Callable[[Task], Path],
        cpu_s: Callable[[Task], float],
        report: Callable[[Event], None],
        leasing: Leasing,
        refused: Callable[[Refused], None],
        complaints: Complaints,
        changes: Changes,
        heard: Callable[[], bool] = lambda: True,
        shortage: Callable[[], str] = str,
    ) -> None:
        """Wire it up.

        Args:
            active: the tasks that have not ended.
            pages_of: the folder of a task's pages.
            cpu_s: CPU time of all processes of a task so far.
            report: journals a fact about the node.
            leasing: is renewed by heartbeats that the log has, and says whether tasks may run.
            refused: told when the log does not take this agent for what it is.
            complaints: the errors that the agent has logged.
            changes: of what tasks may have of shared GPUs.
            heard: whether the log takes the facts of this agent; while it does not, the agent gives no sign of life.
            shortage: why no task is started on the node at present; empty: tasks are.
        """
        self._bus, self._node_id, self._incarnation, self._gpus = bus, node_id, incarnation, gpus
        self._active, self._pages_of, self._report = active, pages_of, report
        self._leasing, self._refused, self._heard = leasing, refused, heard
        self._changes, self._shortage = changes, shortage
        self._complaints, self._errors_told, self._errors_due_s = complaints, 0, 0.0
        self._meter = Meter()
        self._host = HostProbe()
        self._cpu_s = cpu_s
        self._watching = Watching(cpu_s, virtual=gpus.virtual)
        self._faults: dict[int, str] = {}
        self._utilisations: dict[int, float] = {}
        """{GPU index: as sampled last}, where the same processes have used the GPU since the sample before."""
        self._users: dict[int, list[int | str]] = {}
        """{GPU index: processes, and tasks without pages, that used it} at the last sample."""
        self._source = source_of(node_id)
        self._life = f"{incarnation()}/{os.urandom(8).hex()}"
        self._numbers = itertools.count(1)

    async def run(self, heartbeat_s: float) -> None:
        """Send for ever."""
        beat_due_s = 0.0
        while True:
            at_s = now_s()
            active = self._active()
            readings = {task.key: pages(self._pages_of(task)) for task in active}
            events: list[Event] = []
            leased = self._leasing.holds
            for task in active:
                events += self._meter.measure(task, readings[task.key], self._utilisations, at_s, leased=leased)
            self._meter.forget(active)
            if at_s >= beat_due_s and self._heard():
                beat_due_s = at_s + heartbeat_s
                events += self._heartbeat(active, readings)
                self._tell_errors(at_s)
            await self._send(events)
            await asyncio.sleep(min(1.0, heartbeat_s))

    def _heartbeat(self, active: list[Task], readings: dict[str, list[PageReading]]) -> list[Event]:
        holders: dict[int, list[int]] = {}
        for task in active:
            if not task.runs:
                continue
            for index in task.gpu_indices:
                holders.setdefault(index, []).extend(page.pid for page in pages_on(task, index, readings[task.key]))
        others = self._without_pages(active, readings) if self._gpus.virtual else NO_OTHERS
        samples = self._gpus.read(holders, others)
        users: dict[int, list[int | str]] = {
            index: [*pids, *(key for at, key in others if at == index)] for index, pids in holders.items()
        }
        steady = [index for index in users if users[index] == self._users.get(index)]
        self._utilisations = {s.index: s.utilisation_ratio for s in samples if s.index in steady}
        self._users = users
        for sample in samples:
            self._note_health(sample)
        beat = NodeHeartbeat(
            node_id=self._node_id,
            incarnation=self._incarnation(),
            running_tasks=len(active),
            host=self._host.look(),
            lost_after_s=self._leasing.lost_after_s,
        )
        living = {key: [page for page in found if lives(page.pid)] for key, found in readings.items()}
        used = {sample.index: sample.utilisation_ratio for sample in samples}
        tasks = self._watching.look(active, living, used, time.monotonic(), leased=self._leasing.holds)
        return [beat, *(self._sampled(sample) for sample in samples), *tasks, *self._changes.take()]

    def _without_pages(
        self, active: list[Task], readings: dict[str, list[PageReading]]
    ) -> dict[tuple[int, str], float]:
        """The CPU time so far of tasks that train without the harness, in equal parts for each of their GPUs."""
        at_s = now_s()
        found = [
            task for task in active if task.runs and not readings[task.key] and at_s - task.started_s > FIRST_PAGE_S
        ]
        parts = {task.key: self._cpu_s(task) / len(task.gpu_indices) for task in found}
        return {(index, task.key): parts[task.key] for task in found for index in task.gpu_indices}

    def _tell_errors(self, now_s: float) -> None:
        errors = self._complaints.errors
        if errors == self._errors_told or now_s < self._errors_due_s:
            return
        self._errors_told, self._errors_due_s = errors, now_s + ERRORS_EVERY_S
        last = self._complaints.last
        self._report(NodeErrorsLogged(node_id=self._node_id, incarnation=self._incarnation(), errors=errors, last=last))

    def _sampled(self, sample: GpuReading) -> GpuSampled:
        return GpuSampled(
            node_id=self._node_id,
            index=sample.index,
            utilisation_ratio=round(sample.utilisation_ratio, 4),
            memory_used_bytes=sample.memory_used_bytes,
            temperature_c=sample.temperature_c,
        )

    def _note_health(self, sample: GpuReading) -> None:
        before, fault = self._faults.get(sample.index, ""), sample.fault or self._shortage()
        if fault and not before:
            self._report(GpuUnhealthy(node_id=self._node_id, index=sample.index, note=fault))
        elif before and not fault:
            self._report(GpuRecovered(node_id=self._node_id, index=sample.index))
        self._faults[sample.index] = fault

    async def _send(self, events: list[Event]) -> None:
        if not events:
            return
        sent_s, time_s = boottime_s(), time.time()
        messages = [codec.outgoing(self._envelope(event, time_s)) for event in events]
        try:
            async with asyncio.timeout(APPEND_TIMEOUT_S):
                await self._bus.append(messages)
        except (BusUnavailable, Refused, TimeoutError) as error:
            log.debug("telemetry dropped: %s", error)
            if isinstance(error, Refused):
                self._refused(error)
            self._changes.put_back(event for event in events if isinstance(event, GpuCoordinated))
            return
        if any(isinstance(event, NodeHeartbeat) for event in events):
            self._leasing.acknowledged(sent_s)

    def _envelope(self, event: Event, time_s: float) -> Envelope:
        number = next(self._numbers)
        return Envelope(
            id=request_id(f"{self._source}/telemetry", f"{self._life}/{number}"),
            source=self._source,
            time_s=whole_microseconds(time_s),
            event=event,
            sequence=number,
        )


def _of_rank(task: Task, reading: PageReading, utilisations: Mapping[int, float]) -> float | None:
    index = gpu_of(task, reading)
    return None if index is None else utilisations.get(index)


def _first_mark(reading: PageReading, now_s: float) -> _Mark | None:
    """Where the first record begins: not at the task's start, most of which is imports and building the model.

    None: too few mini-batches to know.
    """
    if reading.minibatches_total < 2:
        return None
    return _Mark(0, now_s - reading.minibatches_total * reading.minibatch_mean_s)


def _record(
    task: Task, reading: PageReading, minibatches: int, interval_s: float, utilisation_ratio: float | None
) -> MinibatchProfiled:
    order = task.order
    nonfinite = "" if reading.loss is None or math.isfinite(reading.loss) else str(reading.loss)
    return MinibatchProfiled(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        rank=reading.rank,
        world_size=order.world_size,
        minibatches=minibatches,
        minibatches_total=reading.minibatches_total,
        interval_s=round(interval_s, 6),
        minibatch_mean_s=round(reading.minibatch_mean_s, 9),
        loss=None if nonfinite else reading.loss,
        loss_nonfinite=nonfinite,
        memory_peak_bytes=reading.memory_peak_bytes,
        memory_min_bytes=reading.memory_min_bytes,
        gpu_utilisation_ratio=None if utilisation_ratio is None else round(utilisation_ratio, 4),
    )
