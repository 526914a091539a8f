"""Grow and shrink (Gandiva, OSDI'18, figure 11): an elastic job goes from one to two to four GPUs, and back.

    python -m tests.bench.growing

Live: real data-parallel processes on virtual GPUs, each sample with a rest of a fixed length in the place of the GPU's
work. What others wait for is how long the job takes to shrink; what it loses itself is the time it stands still.
"""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import JobReady, JobRestored, JobResumed, JobSuspended
from libs.contracts.envelope import Envelope
from libs.contracts.placement import DestinationReserved, JobMoved, JobResized
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.studies.report.style import legend_beside, stacked, styled
from services.roster import SERVICES
from tests.bench.report import RESULTS, Report
from tests.e2e.growing import MOST, WIDTHS, Growing, losses_of, undisturbed

PAUSE_S, PER_WIDTH_S, GROWS_AFTER_S = 0.003, 12.0, 18.0
THIN, WINDOW = 3, 5
"""Every third batch is drawn, and speed over five of those."""
STEPS = (DestinationReserved, JobReady, JobSuspended, JobRestored, JobMoved, JobResumed)
"""Of a resize, in order."""


def run(folder: Path) -> tuple[Growing, list[tuple[float, float]], int]:
    """The scenario. Returns it, the stretches of time at each width, and the number of batches."""
    plan = CellPlan(state_dir=folder / "cell", agents=1, gpus_per_agent=MOST, gateway_port=free_port())
    stretches: list[tuple[float, float]] = []

    def stay() -> None:
        began = time.time()
        time.sleep(PER_WIDTH_S)
        stretches.append((began, time.time()))

    with Cell(plan), Client(plan.gateway_url) as client:
        growing = Growing(client, folder, PAUSE_S)
        client.set_setting("migration", "grow_after_s", GROWS_AFTER_S)  # no process starts while speed is measured
        growing.goes_up_and_down(stay, during_growth=lambda: None)
        batches = growing.ends()
        (folder / "log.jsonl").write_bytes(b"".join(client.export()))
    return growing, stretches, batches


def tell_rates(growing: Growing, stretches: list[tuple[float, float]], say: Report) -> None:
    """Batches per second at each width after the first."""
    times = [float(line.split()[0]) for line in growing.lines()]
    first = min(began for began, _ in stretches)
    alone = [time_s for time_s in times if time_s < first]
    per_s = [(len(alone) - 1) / (alone[-1] - alone[0])] if len(alone) > 1 else []
    for began, ended in stretches:
        inside = [time_s for time_s in times if began <= time_s <= ended]
        per_s.append((len(inside) - 1) / (inside[-1] - inside[0]))
    base = per_s[-1]
    for width, rate in zip(WIDTHS[-len(per_s) :], per_s, strict=True):
        say.row(f"batches per second on {width} GPUs", rate=round(rate, 2), against_one_gpu=round(rate / base, 2))


def tell_resizes(path: Path, batch_s: dict[int, float], say: Report) -> None:
    """How long each resize took, step by step."""
    with open_log(str(path), cell="local") as log:
        said = [record.envelope for record in log.control()]
    steps: list[Envelope] = []
    for envelope in said:
        if isinstance(envelope.event, DestinationReserved):
            steps = []
        if isinstance(envelope.event, (*STEPS, JobResized)):
            steps.append(envelope)
        if isinstance(envelope.event, JobResumed) and len(steps) > len(STEPS):
            _tell_resize(steps, batch_s, say)
            steps = []


def _tell_resize(steps: list[Envelope], batch_s: dict[int, float], say: Report) -> None:
    at = {type(step.event): step.time_s for step in steps}
    [resized] = [step.event for step in steps if isinstance(step.event, JobResized)]
    [still] = [step.event for step in steps if isinstance(step.event, JobSuspended)]
    say.row(
        f"{resized.from_gpus} to {resized.gpus} GPUs ({resized.reason.code})",
        new_processes_ready_s=round(at[JobReady] - at[DestinationReserved], 2),
        to_the_boundary_s=round(still.delay_s, 3),
        one_batch_s=round(batch_s[resized.from_gpus], 3),
        state_taken_over_s=round(at[JobRestored] - at[JobSuspended], 3),
        stands_still_s=round(at[JobResumed] - at[JobSuspended], 3),
        gpus_given_back_after_s=round(at[JobMoved] - at[DestinationReserved], 2)
        if resized.gpus < resized.from_gpus
        else "",
    )


def draw(growing: Growing, reference: list[str]) -> None:
    """`results/growing.svg`: speed and loss over time."""
    lines = [line.split() for line in growing.lines()][::THIN]
    times = [float(line[0]) - float(lines[0][0]) for line in lines]
    with styled():
        figure, (speed, loss) = stacked(2, 5.0)
        rates = [THIN * WINDOW / (b - a) for a, b in zip(times, times[WINDOW:], strict=False)]
        speed.plot(times[WINDOW:], rates, linewidth=1.2)
        speed.set_ylabel("batches per second")
        loss.plot(times, [float.fromhex(line[2]) for line in lines], linewidth=3, alpha=0.5, label="resized")
        constant = [float.fromhex(line.split()[2]) for line in reference[::THIN]]
        loss.plot(times, constant, linewidth=0.8, color="black", label="on one GPU")
        loss.set_xlabel("seconds")
        loss.set_ylabel("loss")
        legend_beside(loss)
        figure.savefig(RESULTS / "growing.svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Run, compare, write."""
    say = Report("growing", "An elastic job grows and shrinks (Gandiva, figure 11)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        growing, stretches, batches = run(folder)
        reference = undisturbed(folder, batches)
        tell_rates(growing, stretches, say)
        times = [float(line.split()[0]) for line in growing.lines()]
        tell_resizes(folder / "log.jsonl", _batch_s(times, stretches), say)
        same = losses_of(growing.lines()) == losses_of(reference)
        say.row("losses against one GPU all along", batches=batches, differences=0 if same else "some")
        with open_log(str(folder / "log.jsonl"), cell="local") as log:
            result = verify(log, SERVICES)
        say.row("audit", decisions=result.decisions, differences=0 if result.ok else "some")
        draw(growing, reference)
    say.write()


def _batch_s(times: list[float], stretches: list[tuple[float, float]]) -> dict[int, float]:
    """{GPUs: seconds per batch}, the longest gap between two batches of a stretch left out of account."""
    found = {}
    for width, (began, ended) in zip(WIDTHS[1:], stretches, strict=True):
        gaps = sorted(b - a for a, b in pairwise(t for t in times if began <= t <= ended))
        found[width] = gaps[len(gaps) // 2]
    return {**found, 1: found.get(1, 0.0)}


if __name__ == "__main__":
    main()
