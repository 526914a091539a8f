"""The demonstration ends when its jobs have, and not because none is listed yet; its summary can be read."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from libs.cli.demo import workload
from libs.cli.demo.run import all_ended
from libs.cli.demo.view import screen, summary

ENDED, RUNNING = {"id": "j-1", "state": "SUCCEEDED"}, {"id": "j-2", "state": "RUNNING"}
FAILED = {"id": "j-2", "state": "FAILED"}
EXPECTED = {"j-1": "SUCCEEDED", "j-2": "FAILED"}


@pytest.mark.parametrize(
    ("listed", "ended"),
    [([], False), ([ENDED], False), ([ENDED, RUNNING], False), ([ENDED, FAILED], True)],
)
def test_a_job_that_is_not_listed_yet_has_not_ended(listed: list[dict[str, str]], ended: bool):
    assert all_ended(listed, EXPECTED) is ended


def test_at_80_columns_the_summary_shows_every_job_whole():
    jobs = [_ended(job) for job in workload.read().jobs]
    title, heads, *rows = _on_80_columns(summary(jobs, 64.8))
    assert title.strip() == "13 jobs in 65 s"
    assert heads.split() == ["JOB", "TENANT", "STATE", "ATTEMPT", "WHERE", "WAITED", "RAN", "STEP", "LOSS"]
    for row, job in zip(rows, jobs, strict=True):
        shown = [job["name"], job["tenant"], job["state"], "2", "n2:0-3", "123", "s", "100", "s", "2500", "0.001234"]
        assert row.split() == shown


def test_at_80_columns_the_screen_cuts_reasons_and_nothing_else():
    why = "tenant vision was granted 6 of 6 GPUs, 1 of its jobs goes first; this one asks for 1"
    waits = {"state": "QUEUED", "where": "", "reason": "ExceedsQuota", "message": why}
    jobs = [_ended(job) | waits for job in workload.read().jobs]
    _, *rows = _on_80_columns(screen(jobs, [], 12.0, []))
    for row, job in zip(rows, jobs, strict=False):
        name, tenant, gpus, state, *reason, step, rate, loss = row.split()
        assert [name, tenant, gpus, state] == [job["name"], job["tenant"], "4", "QUEUED"]
        assert [step, rate, loss] == ["2500", "123/s", "0.001234"]
        assert " ".join(reason).endswith("…")


def _on_80_columns(shown: RenderableType) -> list[str]:
    printed = StringIO()
    Console(width=80, file=printed).print(shown)
    return printed.getvalue().splitlines()


def _ended(job: workload.DemoJob) -> dict[str, Any]:
    """As the gateway shows it, with the widest values that the demonstration has."""
    return {
        "name": job.request["name"],
        "tenant": job.request["tenant"],
        "id": job.request["name"],
        "gpus": 4,
        "state": job.expect,
        "rate_per_s": 123.4,
        "attempt": 2,
        "where": "n2:0-3",
        "submitted_s": 0.0,
        "first_started_s": 123.4,
        "started_s": 123.4,
        "finished_s": 223.4,
        "minibatches": 2500,
        "loss": 0.001234,
    }
