"""What one event costs placement's core, by the number of nodes and of waiting jobs.

    python -m tests.bench.core_scale [--events 100] [--policy backfill …] [--largest]

A cluster of nodes of 8 GPUs is filled with jobs of four widths, and more jobs of these wait. Then jobs arrive (three
events: JobArrived, JobAdmitted, QuotaGranted) and end (JobExited, and JobStarted of what is placed in their stead).
Figures are CPU time: of an arrival or an end the mean over all its events, of a timer with what follows from it, and
the largest of any single event. Each cell has a process of its own. Limits are ratios to a smaller cell in the same
run. `--largest` adds the largest cell, which takes minutes to be filled: there no single event may take more than 1 %
of a round.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libs.runtime.starting  # noqa: F401 - Python's collector of cycles is set as in a service
from libs.contracts import settings
from libs.contracts.admission import JobAdmitted
from libs.contracts.agent import JobExited, JobStarted
from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import PolicyChanged
from libs.contracts.placement import OWNER, AllocationComputed, JobPlaced
from libs.contracts.quota import QuotaGranted
from libs.contracts.reasons import Reason
from libs.contracts.runtime import TimerFired
from libs.kernel.ids import request_id
from libs.kernel.replica import Replica
from libs.testing.core_case import arrival, node
from services.placement.service import SERVICE
from tests.bench.report import Report

GPUS = 8
WIDTHS = (1, 2, 4, 8)
SAID = Reason(code="Bench", message="said by the benchmark")
LARGEST_POLICY, PART_OF_ROUND = "max_min_fairness", 0.01
STEP_S = 0.01
"""Between two events: many are in one round."""


@dataclass(frozen=True)
class Size:
    """Of a cell."""

    nodes: int
    waiting: int

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, {self.waiting:,} waiting"


@dataclass(frozen=True)
class Limit:
    """How many times as much an event may cost in a larger cell."""

    policy: str
    small: Size
    large: Size
    at_most: float


LIMITS = (
    Limit("backfill", Size(100, 1_000), Size(10_000, 1_000), 3.0),
    Limit("backfill", Size(100, 1_000), Size(100, 100_000), 2.0),
    Limit("max_min_fairness", Size(100, 1_000), Size(1_000, 10_000), 3.0),
    Limit("gandiva", Size(100, 1_000), Size(1_000, 10_000), 3.0),
)


LARGEST = Size(10_000, 100_000)


class Cell:
    """Placement, fed by hand."""

    def __init__(self, policy: str) -> None:
        self.replica = Replica(SERVICE)
        self.now_s, self._given, self._jobs = 0.0, 0, 0
        self.largest_s = 0.0
        """CPU time of the event that took most."""
        self.running: dict[str, tuple[int, list[str]]] = {}
        """{job: its attempt and its nodes}, in order of placement."""
        self.give(PolicyChanged(policy=policy, requested_by="bench"))

    def give(self, *events: Event) -> float:
        """Let the core take events; returns the CPU time in seconds."""
        taken_s = 0.0
        for event in events:
            self._given += 1
            self.now_s += STEP_S
            envelope = Envelope(
                id=request_id("bench", str(self._given)), source=event.owner, time_s=self.now_s, event=event
            )
            begins_s = time.process_time()
            outputs = self.replica.take(envelope)
            event_s = time.process_time() - begins_s
            taken_s, self.largest_s = taken_s + event_s, max(self.largest_s, event_s)
            for output in outputs:
                if isinstance(output.event, JobPlaced):
                    nodes = [task.node_id for task in output.event.gang]
                    self.running[output.event.job_id] = output.event.attempt, nodes
                elif isinstance(output.event, AllocationComputed):
                    taken_s += self.give(output.event)
        return taken_s

    def arrives(self) -> list[Event]:
        """The three events by which another job gets on the queue."""
        width = WIDTHS[self._jobs % len(WIDTHS)]
        job_id, self._jobs = f"j{self._jobs}", self._jobs + 1
        granted = QuotaGranted(job_id=job_id, attempt=1, tenant="default", gpus=width, reason=SAID)
        return [arrival(job_id, width), JobAdmitted(job_id=job_id, reason=SAID), granted]

    def starts(self, job_ids: Iterable[str]) -> Iterator[Event]:
        """Their tasks run."""
        for job_id in job_ids:
            attempt, nodes = self.running[job_id]
            for node_id in nodes:
                yield JobStarted(job_id=job_id, attempt=attempt, node_id=node_id, pid=1)

    def ends(self, job_id: str) -> list[Event]:
        """Its tasks end well."""
        attempt, nodes = self.running.pop(job_id)
        return [
            JobExited(job_id=job_id, attempt=attempt, node_id=n, exit_code=0, signal=None, outcome="exited")
            for n in nodes
        ]

    def wakes(self) -> float | None:
        """Let the time come that the core waits for; returns CPU seconds. None: it waits for none."""
        due_s = self.replica.next_wakeup
        if due_s is None:
            return None
        self.now_s = max(self.now_s, due_s)
        return self.give(TimerFired(service=SERVICE.name, due_s=due_s))


def filled(policy: str, size: Size) -> Cell:
    """A cell with all GPUs held, and so many jobs that wait."""
    cell = Cell("backfill")  # fills it fastest; the policy in question takes over
    cell.give(*(node(f"n{number:05}", GPUS) for number in range(size.nodes)))
    jobs = 4 * size.nodes * GPUS // sum(WIDTHS)
    for _ in range(jobs + size.waiting):
        cell.give(*cell.arrives())
    cell.give(*cell.starts(list(cell.running)))
    if policy != "backfill":
        cell.give(PolicyChanged(policy=policy, requested_by="bench"))
    return cell


def measured(cell: Cell, events: int) -> dict[str, float]:
    """{what: milliseconds}: the means of arrivals and of ends, a timer, and the largest of all their events."""
    gc.collect()
    gc.freeze()
    arrivals, ends, ended = 0.0, 0.0, 0
    cell.largest_s = 0.0
    for _ in range(events):
        arrivals += cell.give(*cell.arrives())
    for _ in range(events):
        held = dict(cell.running)
        job_id = next(iter(held), None)
        if job_id is None:
            break
        taken_s = cell.give(*cell.ends(job_id))
        taken_s += cell.give(*cell.starts([new for new in cell.running if new not in held]))
        ends, ended = ends + taken_s, ended + 1
    woken_s = cell.wakes()
    return {
        "arrival_ms": round(1e3 * arrivals / events, 3),
        "end_ms": round(1e3 * ends / max(1, ended), 3),
        "timer_ms": round(1e3 * (woken_s or 0.0), 1),
        "largest_ms": round(1e3 * cell.largest_s, 1),
    }


def measured_alone(policy: str, size: Size, events: int) -> dict[str, float]:
    """The same in a process of its own, as a service is: the memory of other cells is not in its way."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured_anew, (policy, size, events))


def _measured_anew(policy: str, size: Size, events: int) -> dict[str, float]:
    return measured(filled(policy, size), events)


def main() -> int:
    """Measure and write the results; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100, help="arrivals, and as many ends, per cell")
    parser.add_argument("--policy", action="append", help="only these")
    parser.add_argument("--largest", action="store_true", help=f"{LARGEST}, too: no single event may take long there")
    options = parser.parse_args()
    report = Report("core_scale", "What one event costs placement")
    known: dict[tuple[str, Size], dict[str, float]] = {}
    for limit in LIMITS:
        if options.policy and limit.policy not in options.policy:
            continue
        for size in (limit.small, limit.large):
            if (limit.policy, size) not in known:
                known[limit.policy, size] = measured_alone(limit.policy, size, options.events)
                report.row(f"{limit.policy}, {size}", **known[limit.policy, size])
        small, large = known[limit.policy, limit.small], known[limit.policy, limit.large]
        ratio = max(large[what] / small[what] for what in ("arrival_ms", "end_ms"))
        report.row(
            f"{limit.policy}: {limit.large} against {limit.small}",
            ratio=round(ratio, 1),
            wanted=f"at most {limit.at_most:g}",
            within_limit=ratio <= limit.at_most,
        )
    if options.largest:
        figures = measured_alone(LARGEST_POLICY, LARGEST, options.events)
        limit_ms = 1e3 * PART_OF_ROUND * settings.default(OWNER, "round_s")
        report.row(
            f"{LARGEST_POLICY}, {LARGEST}",
            **figures,
            wanted=f"largest_ms at most {limit_ms:g}",
            within_limit=figures["largest_ms"] <= limit_ms,
        )
    report.write()
    return 0 if report.all_within_limits() else 1


if __name__ == "__main__":
    sys.exit(main())
