"""Everything that shares a cell, on at once: virtual clusters, gangs by locality, guests, trials, failures."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch_agent.harness import inject_path

from libs.cli.cell import Cell
from libs.client import Client
from libs.contracts.admission import TrialPassed
from libs.contracts.cluster import width_of
from libs.contracts.failure_analysis import FailureClassified, JobAbandoned, RetryScheduled
from libs.contracts.gateway import ANY_TYPE
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.contracts.quota import JobUpgraded, QuotaGranted, QuotaReclaimed
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import cases
from tests.e2e.checking import replay
from tests.e2e.test_guests import TRAINS, WAITS, GuestsCell, plan_of

pytestmark = pytest.mark.e2e

GANG, HALF = 4, 4
"""GPUs of the gang, and of the guarantees of two tenants: both together are the cell."""
BORROWERS = ("borrower-0", "borrower-1", "borrower-2")
GUESTS = ("automatic", "opportunistic")
"""By their class; the first one wants quota, and has none at first."""
STEPS = 2
"""Mini-batches of the gang's trial."""
TRIED = f"import os; exec({TRAINS!r} if os.environ['SANJAYA_ATTEMPT'] == '1' else {WAITS!r})"
"""Trains in its trial alone: four ranks that import torch would be most of the test."""
FAILS = "import json; json.loads('oops')"
FAILS_ONCE = """
import os, sys

if os.environ["SANJAYA_ATTEMPT"] == "1":
    sys.exit("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.")
"""


@pytest.mark.parametrize("bus", cases("embedded", thorough=("kafka",)))
def test_tenants_gangs_guests_trials_and_failures_share_a_cell(bus: str, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("PYTHONPATH", inject_path())
    plan = plan_of(tmp_path, bus, agents=2, gpus_per_agent=GANG)
    with Cell(plan), Client(plan.gateway_url) as client:
        jobs = run_all(GuestsCell(client, tmp_path), client)
        states = {name: client.job(job)["state"] for name, job in jobs.items()}
        assert client.status()["conservation"]["light"] == "green"
        said = [each.event for each in GuestsCell(client, tmp_path).log()]
    assert states == {**dict.fromkeys(jobs, "SUCCEEDED"), "broken": "FAILED"}
    check_trial_and_failures(said, jobs)
    check_shares(said, jobs)
    replayed = replay(tmp_path / "log.jsonl", "4711")
    assert replayed.returncode == 0 and re.search(r"\b0 differences", replayed.stdout), (
        replayed.stdout + replayed.stderr
    )
    assert nothing_left_of(tmp_path) == []


def run_all(cell: GuestsCell, client: Client) -> dict[str, str]:
    """{name: id} of all jobs, when they have ended."""
    for tenant in ("lab", "shop"):
        client.set_tenant(tenant, None, guarantees={ANY_TYPE: HALF})
    client.set_tenant("club", 1)
    client.set_policy("philly", guests="antman")
    jobs = {
        "gang": cell.submit("gang", GANG, script=TRIED, tenant="lab", trial=STEPS),
        "broken": cell.submit("broken", script=FAILS, tenant="lab", max_retries=1),
        "again": cell.submit("again", script=FAILS_ONCE, tenant="shop", max_retries=1),
    }
    cell.waits_for("SUCCEEDED", jobs["again"])
    cell.waits_for("FAILED", jobs["broken"])
    cell.until(lambda: (job := client.job(jobs["gang"]))["state"] == "RUNNING" and job["attempt"] == 2)
    jobs["first"] = cell.submit("first", tenant="club", time_limit_s=3600)  # so what comes after it would wait long
    cell.waits_for("RUNNING", jobs["first"])
    for name in GUESTS:
        jobs[name] = cell.submit(name, script=TRAINS, of_class=name, tenant="club")
    cell.until(lambda: all(client.job(jobs[name])["minibatches"] for name in GUESTS))
    jobs |= {name: cell.submit(name, tenant="lab") for name in BORROWERS}
    cell.waits_for("RUNNING", *(jobs[name] for name in (*BORROWERS, *GUESTS)))
    assert sum(len(gpu["guests"]) for gpu in client.gpus() if gpu["job_id"]) == 2, "each guest is beside an owner"
    jobs["owner"] = cell.submit("owner", 2, tenant="shop")
    cell.waits_for("RUNNING", jobs["owner"])
    assert sorted(client.job(jobs[name])["state"] for name in BORROWERS) == ["QUEUED", "QUEUED", "RUNNING"]
    cell.end("gang")
    cell.waits_for("RUNNING", *(jobs[name] for name in BORROWERS))  # on what the gang has left
    cell.end("first", "owner", *BORROWERS)
    cell.until(lambda: any(client.events(type=JobUpgraded.wire_type)))
    cell.end(*GUESTS)
    cell.waits_for("SUCCEEDED", *(job for name, job in jobs.items() if name != "broken"))
    return jobs


def check_trial_and_failures(said: list[Any], jobs: dict[str, str]) -> None:
    """The gang was tried on one GPU first; each failure has its reason and what follows from it."""
    placed = [event for event in of(said, JobPlaced) if event.job_id == jobs["gang"]]
    assert [width_of(event.gang) for event in placed] == [1, GANG]
    assert len({task.node_id for task in placed[1].gang}) == 1, "the gang is close together"
    [passed] = of(said, TrialPassed)
    assert (passed.job_id, passed.steps, passed.reason.code) == (jobs["gang"], STEPS, "TrialPassed")
    causes = {event.job_id: event.cause for event in of(said, FailureClassified)}
    assert causes == {jobs["broken"]: "json_broken", jobs["again"]: "xid_79"}
    assert [event.job_id for event in of(said, JobAbandoned)] == [jobs["broken"]]
    [retry] = of(said, RetryScheduled)
    first, second = (event.gang[0].node_id for event in of(said, JobPlaced) if event.job_id == jobs["again"])
    assert retry.avoided_nodes == [first] and first != second


def check_shares(said: list[Any], jobs: dict[str, str]) -> None:
    """What was lent came back by preemption and was lent again; guests were not in the way, and one became an owner."""
    borrowers, guests = ({jobs[name] for name in names} for names in (BORROWERS, GUESTS))
    shares = {event.job_id: event.share for event in of(said, QuotaGranted) if event.attempt == 1}
    assert {shares[job] for job in (jobs["first"], *borrowers)} == {"borrowed"}
    assert shares[jobs["owner"]] == "guaranteed" and not guests & {*shares}
    [reclaimed] = of(said, QuotaReclaimed)
    victims = {victim.job_id for victim in reclaimed.victims}
    assert reclaimed.job_id == jobs["owner"] and len(victims) == 2 and victims < borrowers
    roles = Counter((event.job_id, event.role) for event in of(said, JobPlaced))
    expected = {job: 2 if job in victims | {jobs["gang"], jobs["again"]} else 1 for job in jobs.values()}
    assert roles == {(job, "guest" if job in guests else "owner"): times for job, times in expected.items()}
    assert [event.job_id for event in of(said, JobUpgraded)] == [jobs["automatic"]]
    assert {event.job_id for event in of(said, JobSucceeded)} == {*jobs.values()} - {jobs["broken"]}


def of(said: list[Any], kind: type) -> list[Any]:
    return [event for event in said if isinstance(event, kind)]
