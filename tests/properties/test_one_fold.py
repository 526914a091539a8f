"""Read models, story, why, results, reports, profiles and traces of any history tell the same of every job.

All of them read one fold, so their agreement shows that none of them bends it. That the fold is right is shown by what
does not read it: the conservation check keeps GPU books of its own, and the table `events` has the facts themselves.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.agent import JobStarted, JobSuspended
from libs.contracts.envelope import Record
from libs.contracts.placement import DestinationReserved, JobMoved, JobPlaced, MoveAbandoned, TimeSliceStarted
from libs.contracts.read_models import AttemptRow, EventRow, GpuRow, JobRow, TaskStatus
from libs.inspect.chrome_trace import write_chrome_trace
from libs.inspect.conservation import Ledger
from libs.inspect.jobs import Jobs
from libs.inspect.profile import profile_of
from libs.inspect.story import story
from libs.inspect.why import why
from libs.lifecycle import Attempt, Life, Lives
from libs.sim.simulation import Simulation
from libs.studies.report.holdings import intervals_of
from libs.testing.builders import Scenario
from libs.testing.strategies import crowded_cells, scenarios
from services.projection.core import Rows, apply
from services.roster import SERVICES
from tests.properties.effort import whole_system

histories = st.one_of(scenarios(), crowded_cells(), crowded_cells(policy="max_min_fairness"))


@whole_system
@given(histories)
def test_states_tasks_and_gpus_agree_after_every_record(scenario: Scenario):
    rows, fold, lives, ledger = Rows(), Jobs(), Lives(), Ledger()
    moves: dict[str, None] = {}
    slices: set[int] = set()
    for record in scenario.run(SERVICES).records():
        event = record.envelope.event
        apply(rows, record)
        fold.take(record)
        lives.take(event, record.envelope.time_s)
        ledger.take(record)
        where = f"#{record.offset} {type(event).__name__} of {event.subject}"
        for row in rows.all(JobRow):
            same_job(row, lives.jobs[row.id], where)
        row, job = rows.get(JobRow, event.subject), fold.jobs.get(event.subject)
        if row is not None and job is not None:
            assert job.state == lives.jobs[event.subject].state, where
            # A job that a slice resumes has the slice as its reason in its row, and in `why` the one before.
            assert job.cancelling or row.reason_offset in slices or row.reason == job.said.reason.code, where
        # The conservation check counts the GPUs that a move keeps, too; the fold counts them when the move is done.
        if isinstance(event, DestinationReserved):
            moves[event.job_id] = None
        elif isinstance(event, JobMoved | MoveAbandoned):
            moves.pop(event.job_id, None)
        elif isinstance(event, TimeSliceStarted):
            slices.add(record.offset)
        if not moves:
            assert len(placed_gpus(lives)) == ledger.close().gpus_held, where
    assert [gpu.id for gpu in rows.all(GpuRow) if gpu.job_id] == []


def same_job(row: JobRow, life: Life, where: str) -> None:
    """The row is as the life, and the life holds GPUs only while placement says so.

    A row of a job that is suspended between time slices does not hear that a node of its has gone: placement preempts
    the job in the next moment.
    """
    unheard = [node_id for node_id, status in life.tasks.items() if row.tasks.get(node_id) is not status]
    if unheard:
        assert life.books.is_placed and life.books.holding is None, where
        assert {life.tasks[node_id] for node_id in unheard} == {TaskStatus.EXITED}, where
    else:
        assert (row.state, row.tasks) == (life.state, life.tasks), where
    assert (row.attempt, row.holds_gpus, row.preemptions) == (life.attempt, life.holds_gpus, life.preemptions), where
    assert life.books.holding is not None or not life.holds_gpus, where


def placed_gpus(lives: Lives) -> set[tuple[str, int]]:
    """GPUs that jobs have by placement's word."""
    holdings = [life.books.holding for life in lives.jobs.values() if life.books.holding is not None]
    return {(task.node_id, index) for held in holdings for task in held.gang for index in task.gpu_indices}


@whole_system
@given(histories)
def test_attempts_results_and_gpu_time_agree_at_the_end(scenario: Scenario):
    simulation = scenario.run(SERVICES)
    records, rows, lives = list(simulation.records()), Rows(), Lives()
    attempts: list[Attempt] = []
    for record in records:
        apply(rows, record)
        ended = lives.take(record.envelope.event, record.envelope.time_s)
        attempts += [each for each in ended if isinstance(each, Attempt)]
    assert sorted(map(of_row, rows.all(AttemptRow))) == sorted(map(of_attempt, attempts))
    check_results(simulation, rows)
    check_gpu_time(simulation, records, attempts)
    check_stories(records, rows)


def of_row(row: AttemptRow) -> tuple[str, int, float, float, float, str]:
    return (row.job_id, row.attempt, row.placed_s, row.started_s or -1.0, row.ended_s or -1.0, row.outcome)


def of_attempt(attempt: Attempt) -> tuple[str, int, float, float, float, str]:
    times = (attempt.placed_s, attempt.started_s or -1.0, attempt.ended_s or -1.0)
    return (attempt.job_id, attempt.number, *times, attempt.outcome)


def check_results(simulation: Simulation, rows: Rows) -> None:
    """The result says of every job what its row says."""
    told = {job["job_id"]: job for job in simulation.result(policy="any", options={})["jobs"]}
    assert sorted(told) == sorted(row.id for row in rows.all(JobRow))
    for row in rows.all(JobRow):
        job = told[row.id]
        assert (job["status"], job["submit_s"], job["finish_s"]) == (row.state, row.submitted_s, row.finished_s)
        assert job["preemptions"] == row.preemptions
        # A task that ends before it begins is not waited for by the row, and makes the gang incomplete for a result.
        assert job["first_start_s"] is None or row.first_started_s is not None
        assert (row.first_started_s or 0.0) <= (job["first_start_s"] or row.first_started_s or 0.0)


def check_gpu_time(simulation: Simulation, records: list[Record], attempts: list[Attempt]) -> None:
    """Results, the report's stretches and the trace's bars give a job the same GPU time."""
    held_s: defaultdict[str, float] = defaultdict(float)
    for interval in intervals_of(simulation.log.control, simulation.cluster, simulation.now_s):
        held_s[interval.job_id] += interval.end_s - interval.start_s
    for job_id, outcome in simulation.outcomes.items():
        assert outcome.gpu_s == pytest.approx(held_s[job_id])
        assert sum(outcome.cost_gpu_s.values()) == pytest.approx(outcome.gpu_s)
    out = io.BytesIO()
    write_chrome_trace(records, out)
    bars = [each for each in json.loads(out.getvalue())["traceEvents"] if each["ph"] == "X"]
    widths = [len(task.gpu_indices) for attempt in attempts for task in attempt.gang]
    assert len(bars) == sum(widths)
    bar_s: defaultdict[str, float] = defaultdict(float)
    for bar in bars:
        bar_s[bar["name"]] += bar["dur"] / 1e6
    for job_id, outcome in simulation.outcomes.items():
        # A bar reaches over the time between slices, in which the job has no GPUs.
        assert outcome.gpu_s <= bar_s[job_id] + 1e-3


def check_stories(records: list[Record], rows: Rows) -> None:
    """Story, why and profile of every job."""
    facts: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for event in rows.all(EventRow):
        facts[event.subject, event.type].append(event.time_s)
    for row in rows.all(JobRow):
        placed = [line for line in story(records, row.id).told if line.event in (JobPlaced.__name__, JobMoved.__name__)]
        assert len(placed) == len([each for each in rows.all(AttemptRow) if each.job_id == row.id])
        explained, profile = why(records, row.id), profile_of(records, row.id)
        assert explained is not None and profile is not None
        assert (explained.state, explained.attempt, explained.reason.code) == (row.state, row.attempt, row.reason)
        assert explained.since_s == row.finished_s
        assert profile.began_s == next(iter(facts[row.id, JobStarted.wire_type]), None)
        assert [still.begin_s for still in profile.stood_still] == facts[row.id, JobSuspended.wire_type]
