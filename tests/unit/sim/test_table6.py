"""Failures drawn by the Philly study's table 6, and found again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import quantiles

import pytest

from libs.cli.simulation import document_of, simulation_of
from libs.contracts.failure_analysis import FailureClassified
from libs.failures.rule import REASONS
from libs.sim.choice import Choice, Failures
from libs.sim.failing import EARLY_S, FOUND_BEFORE, cause_of
from libs.sim.options import Ending
from libs.sim.table6 import drawn_ends, size_class, table
from libs.sim.throughputs import NO_THROUGHPUTS
from libs.sim.traces import TraceJob
from libs.testing.builders import events

SIZES = (1, 1, 1, 1, 2, 4, 8, 16)


def jobs_of(number: int) -> list[TraceJob]:
    return [
        TraceJob(job_id=f"job-{i}", submit_time_s=60.0 * i, gpus=SIZES[i % len(SIZES)], duration_s=600.0)
        for i in range(number)
    ]


@pytest.fixture(scope="module")
def drawn() -> tuple[list[TraceJob], dict[str, Ending]]:
    return drawn_ends(jobs_of(40_000), seed=3)


def test_the_table_is_whole():
    assert list(table()) == list(REASONS)
    assert sum(row.trials for row in table().values()) == 39_776
    assert all(row.one + row.few + row.many == row.trials for row in table().values())


def test_each_size_class_fails_of_what_it_failed_of_in_the_study(drawn: tuple[list[TraceJob], dict[str, Ending]]):
    jobs, endings = drawn
    for size in ("one", "few", "many"):
        found = Counter(
            endings[job.job_id].dooms[0].reason
            for job in jobs
            if size_class(job.gpus) == size and endings[job.job_id].dooms
        )
        studied = {reason: row.jobs_of(size) for reason, row in table().items()}
        for reason, number in studied.items():
            assert found[reason] / found.total() == pytest.approx(number / sum(studied.values()), abs=0.02)


def test_failures_repeat_and_take_as_long_as_in_the_study(drawn: tuple[list[TraceJob], dict[str, Ending]]):
    dooms = {job: ending.dooms for job, ending in drawn[1].items() if ending.dooms}
    for reason in ("incorrect_inputs", "semantic_error"):
        of_reason = [each for each in dooms.values() if each[0].reason == reason]
        row = table()[reason]
        assert sum(map(len, of_reason)) / len(of_reason) == pytest.approx(row.trials / row.jobs, rel=0.1)
        times = [doom.after_s / 60 for each in of_reason for doom in each if doom.after_s is not None]
        twentieths = quantiles(times, n=20)
        assert twentieths[9] == pytest.approx(row.p50_min, rel=0.3)
        assert twentieths[17] == pytest.approx(row.p90_min, rel=0.3)
        assert twentieths[18] == pytest.approx(row.p95_min, rel=0.3)


def test_of_first_failures_by_programs_of_wide_jobs_three_fifths_come_within_five_minutes():
    """It is what a trial can meet: a trial comes before the first failure of its job, and meets an early one.

    The table bounds it: five minutes lie between the median and the 90th percentile of most reasons, so between 0.51
    and 0.89 would fit. What is drawn between percentiles is log-normal.
    """
    wide = [replace(job, gpus=8) for job in jobs_of(60_000)]
    firsts = [ending.dooms[0] for ending in drawn_ends(wide, seed=3)[1].values() if ending.dooms]
    causes = [(doom, *cause_of(doom)) for doom in firsts]
    own = [(doom, reason) for doom, reason, category in causes if category == "user"]
    early = [reason in FOUND_BEFORE or (doom.after_s or 0.0) < EARLY_S for doom, reason in own]
    assert len(own) > 1000
    assert sum(early) / len(own) == pytest.approx(0.614, abs=0.03)


def test_few_users_have_most_failures_and_a_draw_depends_on_its_own_job_alone():
    many, few = drawn_ends(jobs_of(2000), seed=3), drawn_ends(jobs_of(2000)[:-8], seed=3)
    users = {job.user for job in many[0] if many[1][job.job_id].dooms}
    assert "" not in users and len(users) < 10
    assert many[1]["job-5"] == few[1]["job-5"]
    assert drawn_ends(jobs_of(200), seed=4)[1] != drawn_ends(jobs_of(200), seed=3)[1]


def test_the_analysis_finds_the_drawn_reasons_again():
    choice = Choice(policy="backfill", cluster="v100=400", gpus_per_server=8, failures=Failures.TABLE6, seed=7)
    simulation = simulation_of(jobs_of(800), NO_THROUGHPUTS, choice, keep_log=True)
    simulation.run()
    endings = drawn_ends(jobs_of(800), seed=7)[1]
    found = [
        (endings[event.job_id].dooms[event.attempt - 1].reason, event.failure)
        for event in events(simulation, FailureClassified)
    ]
    assert len(found) > 150
    assert sum(drawn == classified for drawn, classified in found) >= 0.99 * len(found)
    document = document_of(simulation, choice, 0.0)
    assert document["options"]["failures"] == "table6"
    assert set(document["summary"]["by_status"]) == {"passed", "killed", "unsuccessful"}
