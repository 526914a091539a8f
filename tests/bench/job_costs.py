"""The costs of a short job in a cell, against an earlier commit: the way to its placement, and CPU time.

    python -m tests.bench.job_costs BASELINE [--jobs 100] [--rounds 4]

BASELINE is the commit to compare with. Cells of both trees are started by turns, on an embedded log,
with one agent of four virtual GPUs. Jobs that do nothing come one by one, twice a second, and are not asked for
meanwhile; so both cells work, and idle, for equally long. How long a job is on its way is told by the times at which
the log took its records. CPU time is that of all processes of the cell, with those that they have started and waited
for; what the same cell uses in as long a time without jobs is taken off. The speed of a machine that is shared with
others changes within minutes: each cell is compared with the one of the other tree that ran just before or after it.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobStarted
from libs.contracts.gateway import JobArrived
from libs.contracts.placement import JobPlaced
from libs.inspect.sources import open_log
from tests.bench.report import Report
from tests.e2e.second_tree import environment
from tests.e2e.test_rounds import wait_until

EVERY_S = 0.5
AT_MOST = 1.03
WAYS = {"submitted to placed": (JobArrived, JobPlaced), "placed to started": (JobPlaced, JobStarted)}
OWN = Path(__file__).parents[2]

Figures = dict[str, float]


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", metavar="BASELINE")
    parser.add_argument("--jobs", type=int, default=100, help="of each cell")
    parser.add_argument("--rounds", type=int, default=4, help="cells of each tree")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        baseline = checked_out(options.baseline, Path(folder))
        found: dict[Path, list[Figures]] = {baseline: [], OWN: []}
        for number in range(options.rounds):
            for tree in (baseline, OWN) if number % 2 == 0 else (OWN, baseline):
                with tempfile.TemporaryDirectory() as state:
                    found[tree].append(figures(Path(state), tree, options.jobs))
                print("this tree" if tree == OWN else options.baseline, found[tree][-1], flush=True)
    report = Report("job_costs", "A short job: its way to its placement, and the CPU time of its cell")
    for what in found[OWN][0]:
        before, now = ([each[what] for each in found[tree]] for tree in (baseline, OWN))
        ratios = [after / first for first, after in zip(before, now, strict=True)]
        is_limited = what in ("submitted to placed, ms", "CPU of a job, ms")
        limit = {"wanted": f"at most {AT_MOST:g}", "within_limit": median(ratios) <= AT_MOST} if is_limited else {}
        report.row(
            what,
            baseline=round(median(before), 2),
            now=round(median(now), 2),
            ratio=round(median(ratios), 3),
            ratios=", ".join(f"{ratio:.3f}" for ratio in ratios),
            **limit,
        )
    report.write()
    sys.exit(0 if report.all_within_limits() else 1)


def checked_out(commit: str, folder: Path) -> Path:
    """A tree with the files of a commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=OWN, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def figures(folder: Path, tree: Path, jobs: int) -> Figures:
    """{what: figure} of one cell with so many jobs."""
    plan = CellPlan(folder / "cell", agents=1, gpus_per_agent=4, gateway_port=free_port(), settings=environment(tree))
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        wait_until(lambda: len(client.gpus()) == 4)
        time.sleep(5.0)
        idle_s = -cpu_s(cell)
        time.sleep(EVERY_S * jobs)
        idle_s += cpu_s(cell)
        busy_s = -cpu_s(cell)
        ids, begins_s = [], time.monotonic()
        for number in range(jobs):
            time.sleep(max(0.0, begins_s + number * EVERY_S - time.monotonic()))
            ids.append(client.submit({"command": ["true"], "gpus": 1})["id"])
        time.sleep(max(0.0, begins_s + jobs * EVERY_S - time.monotonic()))
        busy_s += cpu_s(cell)
        wait_until(lambda: all(client.job(job)["state"] == "SUCCEEDED" for job in ids))
    at_s: dict[type, dict[str, float]] = {cls: {} for way in WAYS.values() for cls in way}
    with open_log(str(plan.state_dir / "log.db"), cell=plan.cell) as log:
        for record in log.control():
            if (of_type := at_s.get(type(record.envelope.event))) is not None:
                of_type[record.envelope.event.subject] = record.appended_at_s
    ways = {
        f"{what}, ms": 1e3 * median(at_s[after][job] - at_s[before][job] for job in ids)
        for what, (before, after) in WAYS.items()
    }
    return {
        **ways,
        "CPU of a job, ms": 1e3 * (busy_s - idle_s) / jobs,
        "idle, % of a CPU": idle_s / EVERY_S / jobs * 100,
    }


def cpu_s(cell: Cell) -> float:
    """User and system time so far of all processes of a cell, seconds; with that of those that they have waited for."""
    return sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in cell.pids().values())


if __name__ == "__main__":
    main()
