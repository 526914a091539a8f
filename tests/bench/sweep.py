"""A live search for hyper-parameters: 30 trials on 4 virtual GPUs, with turns and judgement, and first in, first out.

    python -m tests.bench.sweep [--seed N]

The same trials in the same order both times: a small network that reads handwritten digits, with learning rate, width
and weight decay from wide ranges. The baseline runs every trial to its end, four at a time. What counts is how soon a
trial has reached the target; both curves are drawn.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from libs.cli.cell import Cell, CellPlan
from libs.cli.cell.plan import free_port
from libs.client import Client
from libs.client.client import SWEEP_OVER
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.sim.report.style import canvas, legend_beside, styled
from services.roster import SERVICES
from tests.bench.report import RESULTS, Report

SCRIPT = Path(__file__).parents[2] / "torch_agent" / "examples" / "digits_sweep.py"
TRIALS, GPUS, EPOCHS, PAUSE_S, SLICE_S, TARGET = 30, 4, 20, 0.012, 5.0, 0.97
SPACE: dict[str, dict[str, Any]] = {
    "lr": {"type": "float", "low": 1e-5, "high": 10.0, "log": True},
    "hidden": {"type": "int", "low": 4, "high": 64, "log": True},
    "weight_decay": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
}
Curve = list[tuple[float, float]]
"""(Seconds since the sweep's arrival, best accuracy so far)."""


def searched(folder: Path, policy: str, changes: dict[str, Any]) -> tuple[dict[str, Any], Curve]:
    """One search on a cell of its own, audited."""
    plan = CellPlan(state_dir=folder / "cell", agents=1, gpus_per_agent=GPUS, gateway_port=free_port())
    command = [sys.executable, str(SCRIPT), "--epochs", str(EPOCHS), "--pause", str(PAUSE_S)]
    request = {
        "name": "digits",
        "trial": {"command": shlex.join(command), "gpus": 1},
        "space": SPACE,
        "objective": {"metric": "accuracy", "direction": "maximize", "target": TARGET},
        "trials": TRIALS,
        "sampler": "random",
        "last_step": EPOCHS,
        **changes,
    }
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_setting("placement", "slice_s", SLICE_S)
        client.set_policy(policy)
        sweep = client.submit_sweep(request)["id"]
        while client.sweep(sweep)["state"] not in SWEEP_OVER:
            time.sleep(1)
        found, curves = client.sweep(sweep), client.sweep_curves(sweep)
        (folder / "log.jsonl").write_bytes(b"".join(client.export()))
    with open_log(str(folder / "log.jsonl"), cell="local") as log:
        result = verify(log, SERVICES)
        assert result.ok, result.first
    best = [(point["time_s"], point["value"]) for point in curves["best"]]
    return found, best


def drawn(curves: dict[str, Curve], ends: dict[str, float]) -> None:
    """`results/sweep.svg`: the best accuracy so far against time."""
    with styled():
        figure, (axes,) = canvas()
        for name, curve in curves.items():
            times = [time_s for time_s, _ in curve if time_s <= ends[name]] + [ends[name]]
            values = [value for time_s, value in curve if time_s <= ends[name]]
            axes.step(times, [*values, values[-1]], where="post", label=name)
        axes.axhline(TARGET, linestyle=":", color="grey", linewidth=1)
        axes.set_xlabel("seconds since the search began")
        axes.set_ylabel("best accuracy so far")
        axes.set_xlim(left=0)
        legend_beside(axes)
        figure.savefig(RESULTS / "sweep.svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Search both ways and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    report = Report("sweep", f"{TRIALS} trials on {GPUS} virtual GPUs until one reads {TARGET:.0%} of the digits right")
    curves: dict[str, Curve] = {}
    ends: dict[str, float] = {}
    ways = {
        "turns, judged by curves": ("gandiva", {"favourites": GPUS // 2, "seed": seed}),
        "first in, first out": ("strict_fifo", {"pruner": "none", "seed": seed}),
    }
    for name, (policy, changes) in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            found, curves[name] = searched(Path(folder), policy, changes)
        ends[name] = found["ended_s"] - found["submitted_s"]
        report.row(
            name,
            state=found["state"],
            seconds=round(ends[name], 1),
            best=round(found["best_value"], 4),
            **{state.lower(): number for state, number in found["counts"].items() if number},
        )
    quicker = ends["first in, first out"] / ends["turns, judged by curves"]
    report.row("how many times sooner", seconds=round(quicker, 2), within_limit=quicker > 1.0)
    drawn(curves, ends)
    report.write()
    sys.exit(0 if report.all_within_limits() else 1)


if __name__ == "__main__":
    main()
