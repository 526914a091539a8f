"""A live search for hyper-parameters: 30 trials on 4 virtual GPUs, with turns and judgement, and first in, first out.

    python -m tests.bench.sweep [--seeds N N …]

The same trials in the same order both times: a small network that reads handwritten digits, with learning rate, width
and weight decay from wide ranges. The baseline runs every trial to its end, four at a time. What counts is how soon a
trial has reached the target. Where chance puts the good trials decides how soon the baseline meets one: so there are
several searches, and their times are added up. All curves are drawn.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.client.client import SWEEP_OVER
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from libs.studies.report.style import canvas, legend_beside, styled
from services.roster import SERVICES
from tests.bench.report import RESULTS, Report

SCRIPT = Path(__file__).parents[2] / "torch_agent" / "examples" / "digits_sweep.py"
TRIALS, GPUS, EPOCHS, PAUSE_S, SLICE_S, TARGET = 30, 4, 20, 0.03, 5.0, 0.975
SPACE: dict[str, dict[str, Any]] = {
    "lr": {"type": "float", "low": 1e-5, "high": 10.0, "log": True},
    "hidden": {"type": "int", "low": 4, "high": 64, "log": True},
    "weight_decay": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "turns, judged by curves": ("gandiva", {"favourites": GPUS // 2}),
    "first in, first out": ("strict_fifo", {"pruner": "none"}),
}
"""{name: policy, and how trials are judged}."""


class Search(NamedTuple):
    """What came of one search."""

    seconds: float
    """From its arrival to its end."""
    curve: list[tuple[float, float]]
    """(Seconds since its arrival, best accuracy so far)."""


def searched(name: str, seed: int, report: Report) -> Search:
    """One search, told of."""
    policy, changes = WAYS[name]
    with tempfile.TemporaryDirectory() as folder:
        found, curve = _searched_in(Path(folder), policy, {**changes, "seed": seed})
    seconds = found["ended_s"] - found["submitted_s"]
    report.row(
        f"seed {seed}: {name}",
        state=found["state"],
        seconds=round(seconds, 1),
        best=round(found["best_value"], 4),
        **{state.lower(): number for state, number in found["counts"].items() if number},
    )
    return Search(seconds, curve)


def _searched_in(
    folder: Path, policy: str, changes: dict[str, Any]
) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """On a cell of its own, audited."""
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


def drawn(searches: dict[int, dict[str, Search]]) -> None:
    """`results/sweep.svg`: the best accuracy so far against time, a panel for each seed."""
    with styled():
        figure, panels = canvas(width=11.0, columns=len(searches))
        for axes, (seed, ways) in zip(panels, searches.items(), strict=True):
            for name, search in ways.items():
                curve = [point for point in search.curve if point[0] <= search.seconds]
                times = [time_s for time_s, _ in curve] + [search.seconds]
                values = [value for _, value in curve]
                axes.step(times, [*values, values[-1]], where="post", label=name)
            axes.axhline(TARGET, linestyle=":", color="grey", linewidth=1)
            axes.set_title(f"seed {seed}")
            axes.set_xlabel("seconds since the search began")
            axes.set_xlim(left=0)
        panels[0].set_ylabel("best accuracy so far")
        legend_beside(panels[-1])
        figure.savefig(RESULTS / "sweep.svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Search both ways, once for each seed, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    seeds = parser.parse_args().seeds
    report = Report("sweep", f"{TRIALS} trials on {GPUS} virtual GPUs until one reads {TARGET:.1%} of the digits right")
    searches = {seed: {name: searched(name, seed, report) for name in WAYS} for seed in seeds}
    taken = {name: sum(ways[name].seconds for ways in searches.values()) for name in WAYS}
    quicker = taken["first in, first out"] / taken["turns, judged by curves"]
    report.row("how many times sooner, all searches together", seconds=round(quicker, 2), within_limit=quicker > 1.0)
    drawn(searches)
    report.write()
    sys.exit(0 if report.all_within_limits() else 1)


if __name__ == "__main__":
    main()
