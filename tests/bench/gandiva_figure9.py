"""Six jobs on four GPUs (Gandiva, OSDI'18, figure 9): four from the start, two that come and go.

    python -m tests.bench.gandiva_figure9

Live: real training processes on four virtual GPUs, each mini-batch a step of gradient descent and a wait of a fixed
length in the place of the GPU's work. Progress is read from the harness's pages. Simulated: the same with slices of
60 s, and the delays that were measured live.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from torch_agent.pages import minibatches_done

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobResumed, JobStarted, JobSuspended
from libs.contracts.envelope import Record
from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.sim.clusters import cluster_of
from libs.sim.options import Options
from libs.sim.simulation import Simulation
from libs.sim.traces import TraceJob
from libs.sim.workloads import Planned, Workload, workload_of
from services.roster import SERVICES
from tests.bench.report import Report

SLOTS, FIRST, LATER, PAUSE_S = 4, 4, 2, 0.02
SLICE_S, ALONE_S, TOGETHER_S = 5.0, 20.0, 150.0
SIMULATED_SLICE_S, SIMULATED_S = 60.0, 3600.0
SCRIPT = f"""
import time
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while True:
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep({PAUSE_S})
"""


class Live:
    """A cell with one node, and the jobs on it."""

    def __init__(self, client: Client, state_dir: Path, script: Path) -> None:
        self._client, self._state_dir, self._script = client, state_dir, script
        self.jobs: list[str] = []

    def submit(self, count: int) -> None:
        """More jobs."""
        for _ in range(count):
            job = {"command": [sys.executable, str(self._script)], "name": f"job-{len(self.jobs)}"}
            self.jobs.append(str(self._client.submit(job)["id"]))

    def done(self) -> list[int]:
        """Mini-batches of each job so far."""
        tasks = next(self._state_dir.glob("**/tasks"), self._state_dir)
        return [minibatches_done(tasks / f"{job}.1" / "pages") for job in self.jobs]

    def rates(self, seconds: float) -> list[float]:
        """Mini-batches per second of each job over the next so many seconds."""
        before, began = self.done(), time.monotonic()
        time.sleep(seconds)
        after, took_s = self.done(), time.monotonic() - began
        return [(b - a) / took_s for a, b in zip(before, after, strict=True)]


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll: there is no event for what processes have on their pages."""
    while not holds():
        time.sleep(0.05)


def live(folder: Path, say: Report) -> tuple[float, float]:
    """Run it; returns the mean delays of suspending and of resuming."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    plan = CellPlan(state_dir=folder / "cell", agents=1, gpus_per_agent=SLOTS, gateway_port=free_port())
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_setting("placement", "slice_s", SLICE_S)
        client.set_setting("placement", "pack_utilisation", 0)  # these jobs would rather share than take turns
        client.set_policy("gandiva")
        run = Live(client, plan.state_dir, script)
        run.submit(FIRST)
        wait_until(lambda: all(run.done()))
        alone = run.rates(ALONE_S)
        run.submit(LATER)
        wait_until(lambda: all(run.done()))
        together = run.rates(TOGETHER_S)
        for job in run.jobs[FIRST:]:
            client.cancel(job)
        wait_until(lambda: sum(job["state"] == "RUNNING" for job in client.jobs()) == SLOTS)
        after = run.rates(ALONE_S)[:FIRST]
        for job in run.jobs[:FIRST]:
            client.cancel(job)
        wait_until(lambda: all(job["state"] == "CANCELLED" for job in client.jobs()))
        (folder / "log.jsonl").write_bytes(b"".join(client.export()))
    _tell(say, "live", SLICE_S, mean(alone), together)
    say.row("live, after the two have left", aggregate=round(sum(after) / sum(alone), 4))
    return _delays(folder / "log.jsonl", say)


def _delays(path: Path, say: Report) -> tuple[float, float]:
    with open_log(str(path), cell="local") as log:
        events = [record.envelope.event for record in log.control()]
    with open_log(str(path), cell="local") as log:
        result = verify(log, SERVICES)
    suspended = [event for event in events if isinstance(event, JobSuspended)]
    resumed = [event for event in events if isinstance(event, JobResumed)]
    delay_s, back_s = mean(e.delay_s + e.took_s for e in suspended), mean(e.delay_s for e in resumed)
    say.row("live: suspensions", count=len(suspended), at_a_boundary=sum(event.parked for event in suspended))
    say.row("live: order to memory off the GPU (ms)", mean=round(1000 * delay_s, 1))
    say.row("live: GPU free to next line (ms)", mean=round(1000 * back_s, 1))
    say.row("live: audit", decisions=result.decisions, differences=0 if result.ok else "some")
    return delay_s, back_s


def simulated(suspend_s: float, resume_s: float, say: Report) -> None:
    """The same for an hour, in slices of a minute."""
    jobs = [
        TraceJob(job_id=f"job-{n}", submit_time_s=0.0 if n < FIRST else ALONE_S, gpus=1, duration_s=10 * SIMULATED_S)
        for n in range(FIRST + LATER)
    ]
    setting = SettingChanged(service="placement", name="slice_s", value=SIMULATED_SLICE_S, requested_by="bench")
    policy = PolicyChanged(policy="gandiva", requested_by="bench")
    workload = Workload((Planned(0.0, policy), Planned(0.0, setting))) + workload_of(jobs)
    options = Options(suspend_delay_s=suspend_s, resume_delay_s=resume_s, horizon_s=ALONE_S + SIMULATED_S)
    simulation = Simulation(SERVICES, cluster_of({"virtual": SLOTS}, SLOTS), workload, options=options)
    simulation.run()
    shares = _received(list(simulation.records()), ALONE_S, ALONE_S + SIMULATED_S)
    _tell(say, "simulated", SIMULATED_SLICE_S, 1.0, shares)


def _received(records: list[Record], begin_s: float, end_s: float) -> list[float]:
    """Part of the time in which each job made progress: from its start or return to its suspension."""
    since: dict[str, float] = {}
    received: dict[str, float] = {}
    for record in records:
        event, at_s = record.envelope.event, min(max(record.envelope.time_s, begin_s), end_s)
        if isinstance(event, JobStarted | JobResumed):
            since[event.job_id] = at_s
        elif isinstance(event, JobSuspended):
            received[event.job_id] = received.get(event.job_id, 0.0) + at_s - since.pop(event.job_id)
    for job_id, at_s in since.items():
        received[job_id] = received.get(job_id, 0.0) + end_s - at_s
    return [total / (end_s - begin_s) for _, total in sorted(received.items())]


def _tell(say: Report, how: str, slice_s: float, alone: float, together: list[float]) -> None:
    fair = SLOTS / (FIRST + LATER)
    shares = [rate / alone for rate in together]
    say.row(
        f"{how}, slices of {slice_s:g} s",
        shares=" ".join(f"{share:.3f}" for share in shares),
        fair=round(fair, 3),
        farthest_ratio=round(max(abs(share - fair) for share in shares) / fair, 4),
        aggregate=round(sum(together) / (SLOTS * alone), 4),
    )


if __name__ == "__main__":
    report = Report("gandiva_figure9", "Six jobs take turns on four GPUs (Gandiva, figure 9)")
    with tempfile.TemporaryDirectory() as name:
        delays = live(Path(name), report)
    simulated(*delays, report)
    report.write()
