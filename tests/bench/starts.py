"""How fast a core comes back: refolded of what is recorded, against deciding again; and with a snapshot.

    python -m tests.bench.starts [--data ../shared/data] [--jobs 5000] [--in-rounds 600] [--records 1000000]

A history is simulated with all services and written to an embedded log. Refolding is what a start without a snapshot
does (`Recovery`); deciding again is a new core that takes every input of the same log, decides, and drops what it has
decided. Both decode what they read, both are measured in one process, by turns, in CPU time, and the fastest of each
counts. Refolding costs about the same under every policy: what stands on the log is read, checked and folded. How much
there is to decide depends on the policy and on the load: with a short queue it is little beside reading the log, and
no ratio is asked for; in rounds it is what the policy's solver takes.

With a snapshot at the log's end, a service's process, and the gateway's with its index, is started on a log of 10,000
records and on one of many more, by turns, from its start to the line that says that it is live. The records before the
snapshot are those of one history, appended again and again: a start with a snapshot reads the first of them and no
other.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Bus, Outgoing, Position, TopicLayout
from libs.cli.simulation import simulation_of
from libs.inspect.rules import rules_of
from libs.kernel.replica import Replica
from libs.runtime.messages import decoded, other_types, wire_type
from libs.runtime.recovery import CONTROL, Recovery, log_id
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Stats
from libs.sim.choice import Choice
from libs.sim.simulation import Simulation
from libs.sim.throughputs import NO_THROUGHPUTS, read_throughputs
from libs.sim.workloads import generate
from libs.studies.generators.gavel import GavelWorkload
from services import roster
from tests.bench.report import Report

DATA = Path("../shared/data")
CELL = "bench"
PLACEMENT = roster.service("placement")
BACKFILL = Choice(policy="backfill", cluster="v100=108")
LOADS = {"a queue of hundreds of jobs for hours": (420.0, 3.0), "a short queue": (130.0, 0.0)}
"""Jobs per hour, at about 165 the 108 GPUs have work all the time; and how many times as fast refolding has to be."""
ROUNDS = Choice(policy="max_min_fairness", cluster="v100=36,p100=36,k80=36")
IN_ROUNDS = ("max_min_fairness", "hierarchical", "finish_time_fairness")
GAVEL_JOBS_PER_HOUR = 6.0
AT_LEAST_ROUNDS = 20.0
AT_MOST = 2.0
"""How many times as long a start with a snapshot may take on the long log."""
TURNS, STARTS = 2, 5
GATEWAY = [sys.executable, "-m", "services.gateway", "--port", "0"]
BATCH, APPENDED = 1000, 20_000
FEW = 10_000
START_TIMEOUT_S = 120.0

Made = Callable[[Bus, int], Awaitable[Replica[Any]]]


def histories(data: Path, jobs: int, in_rounds: int) -> dict[str, tuple[Simulation, float]]:
    """{what: the simulation that makes it, not yet run, and the ratio that is wanted}"""
    found: dict[str, tuple[Simulation, float]] = {}
    for load, (per_hour, wanted) in LOADS.items():
        trace = generate(jobs, seed=1, jobs_per_hour=per_hour)
        simulation = simulation_of(trace, NO_THROUGHPUTS, BACKFILL, keep_log=True)
        found[f"backfill, {load}"] = simulation, wanted
    rates = read_throughputs(data / "throughputs.json")
    drawn = GavelWorkload(kind="continuous-single", jobs=in_rounds, jobs_per_hour=GAVEL_JOBS_PER_HOUR).draw(0, rates)
    for policy in IN_ROUNDS:
        for shared in (False, True):
            choice = replace(ROUNDS, policy=policy, space_sharing=shared)
            simulation = simulation_of(drawn, rates, choice, keep_log=True)
            found[f"{policy}, GPUs are {'' if shared else 'not '}shared"] = simulation, AT_LEAST_ROUNDS
    return found


def outgoing(simulation: Simulation) -> list[Outgoing]:
    """The control log that a simulation makes, as it is appended."""
    simulation.run()
    return [codec.outgoing(envelope) for envelope in simulation.log.control]


async def written(url: str, messages: list[Outgoing], records: int) -> Bus:
    """A new log of so many records: the messages, again and again."""
    bus = await connect(url, CELL)
    await bus.create_topics(TopicLayout())
    left = records
    while left > 0:
        for first in range(0, min(left, len(messages)), APPENDED):
            await bus.append(messages[first : min(first + APPENDED, left)])
        left -= len(messages)
    return bus


async def refolded(bus: Bus, end: int) -> Replica[Any]:
    """Placement as a start without a snapshot has it."""
    recovery = Recovery(PLACEMENT, bus, "", None, Stats(PLACEMENT.name), asyncio.Event())
    return (await recovery.run(await log_id(bus), end)).replica


async def decided_again(bus: Bus, end: int) -> Replica[Any]:
    """Placement, having decided on every input of the log anew."""
    replica, passed_over = Replica(PLACEMENT), other_types(PLACEMENT.machine)
    reader = await bus.reader({CONTROL: 0})
    while replica.next_offset < end:
        for message in await reader.next_batch(BATCH, 10.0):
            if wire_type(message) not in passed_over:
                replica.take(decoded(message))
            replica.next_offset = message.offset + 1
    await reader.close()
    return replica


async def refold_against_deciding(what: str, messages: list[Outgoing], wanted: float, report: Report) -> None:
    """One history, both ways."""
    end = len(messages)
    ways: dict[str, Made] = {"refold": refolded, "decide": decided_again}
    states: list[bytes] = []
    micros: dict[str, float] = dict.fromkeys(ways, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        bus = await written(f"sqlite:///{folder}/log.db", messages, end)
        gc.collect()
        gc.freeze()  # a process that starts does not have a simulation in its memory to look through
        for _ in range(TURNS):
            states = []
            for way, make in ways.items():
                began_s = time.process_time()
                replica = await make(bus, end)
                micros[way] = min(micros[way], 1e6 * (time.process_time() - began_s) / end)
                states.append(replica.state_bytes)
            if states[0] != states[1]:
                raise SystemExit(f"{what}: the refolded state is not the one that was decided")
        await bus.close()
    ratio = micros["decide"] / micros["refold"]
    report.row(
        what,
        records=end,
        state_bytes=len(states[0]),
        refold_us_per_record=round(micros["refold"], 1),
        decide_us_per_record=round(micros["decide"], 1),
        ratio=round(ratio, 1),
        wanted=f"at least {wanted:g}" if wanted else "",
        within_limit=ratio >= wanted,
    )


async def cell_with_snapshot(folder: Path, messages: list[Outgoing], records: int) -> None:
    """A cell of which placement has handled a log of so many records and has a snapshot at its end.

    The state is that after the first records, in the midst of the history: jobs run and wait.
    """
    bus = await written(f"sqlite:///{folder}/log.db", messages, records)
    replica = await decided_again(bus, FEW)
    replica.next_offset = records
    snapshots = Snapshots(f"sqlite:///{folder}/read_models.db", CELL)
    snapshots.save(replica.snapshot(rules_of(f"services.{PLACEMENT.name}.service")), await log_id(bus), 0.0)
    snapshots.close()
    session = await bus.open_session(PLACEMENT.name)
    await session.commit([], {CONTROL: Position(records)})
    await bus.close()


def index_is_stored(folder: Path) -> None:
    """A gateway has read the log once."""
    started(folder, GATEWAY, knows_all)


def knows_all(line: str) -> bool:
    """Whether a line of the gateway's says that it takes requests."""
    return "the index of requests is complete" in line


def started(folder: Path, command: list[str], is_live: Callable[[str], bool]) -> tuple[float, float]:
    """Start a process of a cell in `folder` and stop it as soon as a line that it logs says that it is live.

    Returns:
        Seconds until then, and seconds of CPU time of its whole life.

    Raises:
        SystemExit: it ended before, or not in order.
    """
    env = {**os.environ, "SANJAYA_STATE_DIR": str(folder), "SANJAYA_CELL": CELL}
    before, began_s = os.times(), time.perf_counter()
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if is_live(line):
            break
    took_s = time.perf_counter() - began_s
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=START_TIMEOUT_S)
    if process.returncode != 0 or not is_live(lines[-1]):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{''.join(lines)}")
    after = os.times()
    return took_s, after.children_user + after.children_system - before.children_user - before.children_system


def compare_starts(
    what: str, folders: dict[int, Path], command: list[str], is_live: Callable[[str], bool], report: Report
) -> None:
    """Start one process on both logs, by turns.

    Args:
        what: the process's name in the report.
        folders: {records: state directory of the cell}, the short log first.
        command: what is started there.
        is_live: whether a line on its standard error says that it is live.
        report: gets a row per log, and the ratio.
    """
    starts: dict[int, list[tuple[float, float]]] = {records: [] for records in folders}
    for _ in range(STARTS):
        for records, folder in folders.items():
            starts[records].append(started(folder, command, is_live))
    walls_s = {records: min(wall_s for wall_s, _ in each) for records, each in starts.items()}
    cpus_s = {records: min(cpu_s for _, cpu_s in each) for records, each in starts.items()}
    for records in folders:
        figures = {"start_s": round(walls_s[records], 2), "cpu_s": round(cpus_s[records], 2)}
        report.row(f"{what} starts with a snapshot", records=records, **figures)
    few, many = folders
    ratio = walls_s[many] / walls_s[few]
    report.row(
        f"{what}, start on the long log against the short one",
        ratio=round(ratio, 2),
        cpu_ratio=round(cpus_s[many] / cpus_s[few], 2),
        wanted=f"at most {AT_MOST:g}",
        within_limit=ratio <= AT_MOST,
    )


async def main() -> int:
    """Measure and write the results; 1 when a ratio is not what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--jobs", type=int, default=5000, help="of each history under backfill")
    parser.add_argument("--in-rounds", type=int, default=600, help="jobs of each history in rounds")
    parser.add_argument("--records", type=int, default=1_000_000, help="of the long log")
    options = parser.parse_args()
    if not options.data.exists():
        raise SystemExit(f"{options.data}: no such folder; nothing is measured without the data")
    report = Report("starts", "A core comes back")
    longest: list[Outgoing] = []
    for what, (simulation, wanted) in histories(options.data, options.jobs, options.in_rounds).items():
        messages = outgoing(simulation)
        longest = max(longest, messages, key=len)
        await refold_against_deciding(what, messages, wanted, report)
    with tempfile.TemporaryDirectory() as folder:
        folders = {records: Path(folder) / str(records) for records in (FEW, options.records)}
        for records, place in folders.items():
            place.mkdir()
            await cell_with_snapshot(place, longest, records)
        command = [sys.executable, "-m", "libs.runtime", PLACEMENT.name]
        compare_starts(PLACEMENT.name, folders, command, lambda line: " msg=live " in line, report)
        for place in folders.values():
            index_is_stored(place)
        compare_starts("gateway", folders, GATEWAY, knows_all, report)
    report.write()
    return 0 if report.all_within_limits() else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
