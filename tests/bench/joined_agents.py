"""How long from a job's placement to its start on an agent over HTTP, against one on the log itself.

    python -m tests.bench.joined_agents [--jobs 60]

One cell on an embedded log, as `sanjaya up --host` starts it, with one agent of its own and one that has joined by TLS,
both on this machine. Short jobs go to one and the other by turns, one at a time. The time is that between JobPlaced and
JobStarted on the log, by the log's own clock: the order on its way, the start of the process, the fact on its way back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobStarted
from libs.contracts.placement import JobPlaced
from libs.inspect.sources import open_log
from libs.testing.proxy import Proxy
from tests.bench.report import Report
from tests.e2e.test_joined_agents import HOST, joined
from tests.e2e.test_rounds import wait_until

AT_MOST = 2.0
"""How many times as long the median over HTTP may be."""
WARM_UP = 3
"""Jobs on each agent that are not counted."""
TYPES = {"on the log itself": "virtual", "over HTTP": "far"}
"""{how an agent reaches the log: the type of its GPUs}"""


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60, help="on each agent")
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as folder:
        found = {what: taken[WARM_UP:] for what, taken in measured(Path(folder), count + WARM_UP).items()}
    report = Report("joined_agents", "From placed to started, on the log itself and over HTTP")
    base_ms = median(found["on the log itself"])
    for what, taken_ms in found.items():
        ratio = median(taken_ms) / base_ms
        report.row(
            what,
            jobs=len(taken_ms),
            median_ms=round(median(taken_ms), 1),
            p90_ms=round(quantiles(taken_ms, n=10)[-1], 1),
            ratio=round(ratio, 2),
            wanted=f"at most {AT_MOST:g}",
            within_limit=ratio <= AT_MOST,
        )
    report.write()
    sys.exit(0 if report.all_within_limits() else 1)


def measured(folder: Path, count: int) -> Mapping[str, list[float]]:
    """{how the agent reaches the log: milliseconds from placed to started of each of its jobs, in order}"""
    plan = CellPlan(folder / "cell", agents=1, gpus_per_agent=1, gateway_port=free_port(), host=HOST)
    jobs: dict[str, list[str]] = {what: [] for what in TYPES}
    with (
        Proxy(plan.gateway_port, HOST) as network,
        Cell(plan) as cell,
        Client(plan.gateway_url) as client,
        joined(cell, network, "far", folder, "--gpu-type", "far"),
    ):
        wait_until(lambda: any(node["id"] == "far" for node in cell.get("/v1/nodes")["items"]))
        for _ in range(count):
            for what, gpu_type in TYPES.items():
                job = client.submit({"command": ["true"], "gpus": {"count": 1, "types": [gpu_type]}})["id"]
                wait_until(lambda job=job: client.job(job)["state"] == "SUCCEEDED")
                jobs[what].append(job)
    placed_s: dict[str, float] = {}
    started_s: dict[str, float] = {}
    with open_log(str(plan.state_dir / "log.db"), cell=plan.cell) as log:
        for record in log.control():
            event = record.envelope.event
            if isinstance(event, JobPlaced):
                placed_s[event.job_id] = record.appended_at_s
            elif isinstance(event, JobStarted):
                started_s[event.job_id] = record.appended_at_s
    return {what: [1000 * (started_s[job] - placed_s[job]) for job in of] for what, of in jobs.items()}


if __name__ == "__main__":
    main()
