"""Jobs whose loss improves no more, in a whole cell: five of the examples, with their losses told in several ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.contracts.agent import MetricsReported
from libs.contracts.envelope import Envelope
from libs.contracts.gateway import JobCancelRequested
from libs.contracts.introspection import HostProfiled, JobConverged
from libs.contracts.placement import JobPlaced
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import checked, sanjaya

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

EXAMPLES = Path(__file__).parents[2] / "torch_agent" / "examples"
ENDED_BY_SIGTERM = 143
LINES = ("--loss-line", "step {epoch} loss {loss}")
ENDLESS = ("--steps", "1000000")
JOBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # The harness sees the epochs of a DataLoader. As a Job it keeps the checkpoint of its best epoch.
    "mlp": (
        ("--stop-when-converged", "--converge-epochs", "2", "--converge-ratio", "0.5"),
        ("mlp.py", "--movable", "--batch-size", "256", "--pause", "0.4", *ENDLESS),
    ),
    "autoencoder": (
        ("--stop-when-converged", "--converge-epochs", "20", "--converge-ratio", "0.3"),
        ("autoencoder.py", *ENDLESS),
    ),
    # The script reports.
    "sweep": (
        ("--when-converged", "tell", "--converge-epochs", "4", "--converge-ratio", "0.5"),
        ("digits_sweep.py", "--epochs", "30", "--pause", "0.003"),
    ),
    # Lines of its output are read; a step counts as an epoch.
    "lstm": (
        ("--stop-when-converged", "--converge-epochs", "150", "--converge-ratio", "0.3", *LINES),
        ("lstm.py", *ENDLESS),
    ),
    # Not asked for: neither told nor stopped.
    "cnn": ((), ("cnn.py", "--steps", "200")),
}
"""{name: (options of submit, the command behind `python`)}."""


@pytest.fixture(scope="module", params=cases("embedded", thorough=("kafka",)))
def cell(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("convergence")
    plan = CellPlan(
        state_dir=folder / "cell",
        agents=1,
        gpus_per_agent=len(JOBS),
        gateway_port=free_port(),
        kafka="" if request.param == "kafka" else None,
    )
    with Cell(plan) as running:
        yield running
    assert nothing_left_of(folder) == []


def losses_of(said: list[Envelope], job_id: str) -> list[tuple[float, float, float]]:
    """(epoch, loss, time) of every report of the job."""
    events = [(each.event, each.time_s) for each in said]
    return [
        (event.step, event.values["loss"], time_s)
        for event, time_s in events
        if isinstance(event, MetricsReported) and event.job_id == job_id
    ]


def check_by_hand(said: list[Envelope], job_id: str, ratio: float) -> JobConverged:
    """What JobConverged says is what a plain count of the log says; the job has one GPU."""
    [at] = [n for n, each in enumerate(said) if isinstance(each.event, JobConverged) and each.event.job_id == job_id]
    fact = said[at].event
    assert isinstance(fact, JobConverged)
    [placed_s] = [each.time_s for each in said if isinstance(each.event, JobPlaced) and each.event.job_id == job_id]
    curve = losses_of(said[:at], job_id)
    best = min(loss for _, loss, _ in curve)
    best_epoch = next(epoch for epoch, loss, _ in curve if loss == best)
    near_epoch, near_s = next((epoch, time_s) for epoch, loss, time_s in curve if loss <= best * (1 + ratio))
    last_epoch, _, last_s = curve[-1]
    assert (fact.epoch, fact.best, fact.best_epoch, fact.converged_epoch) == (last_epoch, best, best_epoch, near_epoch)
    assert fact.gpu_s == pytest.approx(last_s - placed_s, abs=0.001)
    assert fact.gpu_s_since == pytest.approx(last_s - near_s, abs=0.001)
    return fact


def test_jobs_converge_as_they_asked(cell: Cell, tmp_path: Path):
    jobs = {
        name: sanjaya(
            cell, "submit", "-n", name, "--workdir", str(EXAMPLES), *options, "--", "python", *command
        ).strip()
        for name, (options, command) in JOBS.items()
    }
    for job in jobs.values():
        sanjaya(cell, "wait", job, accepted=(0, ENDED_BY_SIGTERM))
    (tmp_path / "log.jsonl").write_bytes(log_of(cell))
    said = checked(tmp_path / "log.jsonl")
    for name in ("mlp", "autoencoder", "lstm", "sweep"):
        options = JOBS[name][0]
        check_by_hand(said, jobs[name], float(options[options.index("--converge-ratio") + 1]))
    stopped = {each.event.job_id for each in said if isinstance(each.event, JobCancelRequested)}
    assert stopped == {jobs[name] for name in ("mlp", "autoencoder", "lstm")}
    assert not [each for each in said if isinstance(each.event, JobConverged) and each.event.job_id == jobs["cnn"]]
    check_what_is_kept(cell, said, jobs["mlp"])
    check_what_is_shown(cell, jobs)
    assert any(isinstance(each.event, HostProfiled) for each in said)


def log_of(cell: Cell) -> bytes:
    from libs.client import Client

    with Client(cell.plan.gateway_url) as client:
        return b"".join(client.export())


def check_what_is_kept(cell: Cell, said: list[Envelope], job_id: str) -> None:
    """Stopped within an epoch, and the checkpoint of the best epoch is there."""
    curve = losses_of(said, job_id)
    [fact] = [e.event for e in said if isinstance(e.event, JobConverged) and e.event.job_id == job_id]
    assert curve[-1][0] <= fact.epoch + 1, "stopped within an epoch"
    [note] = cell.plan.state_dir.glob(f"**/checkpoints/{job_id}/best/attempt-1/job-*/loss.json")
    kept = json.loads(note.read_text())
    assert kept["loss"] == pytest.approx(min(loss for _, loss, _ in curve))
    assert note.parent.name == f"job-{kept['batches_done']}"
    state = torch.load(note.with_name("rank-0"), weights_only=False)
    assert state["position"]["batches_done"] == kept["batches_done"]
    [epoch] = {epoch for epoch, loss, _ in curve if loss == min(each for _, each, _ in curve)}
    assert state["position"]["epochs_done"] == epoch


def check_what_is_shown(cell: Cell, jobs: dict[str, str]) -> None:
    shown = json.loads(sanjaya(cell, "show", jobs["mlp"], "--json"))
    assert (shown["state"], shown["status"]) == ("CANCELLED", "killed")
    assert f"at epoch {shown['converged_epoch']:g}; best loss" in sanjaya(cell, "show", jobs["mlp"])
    story = sanjaya(cell, "story", jobs["mlp"])
    assert "has converged: loss has not fallen by 50.00%" in story and "asked to be stopped" in story
    told = json.loads(sanjaya(cell, "show", jobs["sweep"], "--json"))
    assert (told["state"], told["status"]) == ("SUCCEEDED", "passed") and told["converged_epoch"] is not None
    [attempt] = told["attempts"]
    assert attempt["gpu_s"] == pytest.approx(told["gpu_s"]) and told["gpu_s"] > 0
    assert f"epoch {told['converged_epoch']:g}" in sanjaya(cell, "jobs", "-o", "wide")
    assert " cpu, " in sanjaya(cell, "nodes")
