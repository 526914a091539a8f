"""Wide jobs run their trials in simulations, too."""

from __future__ import annotations

import pytest

from libs.contracts.admission import TrialFailed, TrialPassed
from libs.contracts.cluster import width_of
from libs.contracts.placement import JobPlaced, JobQueued
from libs.inspect.conservation import conservation
from libs.lifecycle import Lives
from libs.sim.options import Doom, Ending
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, events
from services.roster import SERVICES

WRONG = "Traceback (most recent call last):\nValueError: expected 5 features, found 4"
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 GiB"


def ran(*dooms: Doom, above: int = 4, runs_s: float = 3600.0) -> Simulation:
    """One job of eight GPUs, with jobs of more than `above` in trials."""
    scenario = Scenario().servers(8, v100=8).options(endings={"wide": Ending(dooms=dooms)} if dooms else {})
    scenario.setting("admission", "trial_above_gpus", above)
    return scenario.job("wide", 8, at=10.0, runs_s=runs_s, max_retries=2).run(SERVICES)


def doom(stderr: str, after_s: float) -> Doom:
    return Doom(at_ratio=1.0, exit_code=1, signal=None, stderr_tail=stderr, after_s=after_s)


def widths(simulation: Simulation) -> list[int]:
    return [width_of(placed.gang) for placed in events(simulation, JobPlaced)]


def test_a_trial_takes_so_many_mini_batches_on_one_gpu_and_leaves_no_work_behind():
    simulation = ran()
    outcome = simulation.outcomes["wide"]
    assert widths(simulation) == [1, 8]
    assert outcome.gpu_s_by_attempt == {1: 3.0, 2: 8 * 3600.0}
    assert [passed.gpu_s for passed in events(simulation, TrialPassed)] == [3.0]


def test_the_programs_own_early_failure_happens_there_and_is_not_tried_again():
    simulation = ran(doom(WRONG, 120.0), doom(WRONG, 120.0))
    assert widths(simulation) == [1]
    assert (simulation.outcomes["wide"].status, simulation.outcomes["wide"].gpu_s) == ("FAILED", 3.0)
    assert len(events(simulation, TrialFailed)) == 1


@pytest.mark.parametrize("later", [doom(WRONG, 301.0), doom(FULL, 120.0)])
def test_what_comes_later_or_is_not_of_the_program_alone_happens_to_the_gang(later: Doom):
    simulation = ran(later)
    assert widths(simulation)[:2] == [1, 8]
    assert simulation.outcomes["wide"].gpu_s > 8 * 100.0


def test_what_does_not_compile_is_found_in_the_trial_whatever_time_was_drawn():
    broken = "  File \"train.py\", line 3\n    if True\n           ^\nSyntaxError: expected ':'"
    assert widths(ran(doom(broken, 3000.0))) == [1]


def test_an_early_end_without_a_word_is_the_programs_own():
    assert widths(ran(doom("", 120.0))) == [1]


def test_what_fails_no_later_than_its_work_ends_fails_early_where_that_is_short():
    assert widths(ran(doom(WRONG, 3000.0), runs_s=200.0)) == [1]
    assert widths(ran(doom(WRONG, 3000.0), runs_s=400.0))[:2] == [1, 8]


def test_a_store_that_is_away_at_the_start_is_away_for_the_trial_too():
    away = doom("urllib.error.HTTPError: HTTP Error 503: Service Unavailable", 100.0)
    assert widths(ran(away)) == [1, 1, 8], "it is no fault of the program: the trial is repeated"
    assert widths(ran(away, doom(WRONG, 100.0))) == [1, 1]


def test_a_job_that_is_no_wider_has_none():
    assert widths(ran(above=8)) == [8]


def test_the_time_until_its_trial_starts_is_booked_as_waiting_for_it():
    scenario = Scenario().servers(8, v100=8).setting("admission", "trial_above_gpus", 4)
    scenario.setting("admission", "trial_patience_s", 0)
    scenario.job("first", 4, at=0.0, runs_s=50.0).job("second", 4, at=0.0, runs_s=90.0)
    scenario.job("wide", 8, at=10.0, runs_s=5.0)
    lives, causes = Lives(), []
    for envelope in scenario.run(SERVICES).log.control:
        lives.take(envelope.event, envelope.time_s)
        if "wide" in lives.jobs and envelope.event.subject == "wide":
            books = lives.jobs["wide"].books
            causes.append(books.counted(books.wait.present) if not books.is_placed else "")
    assert list(dict.fromkeys(filter(None, causes))) == ["NotYetEvaluated", "TrialPending", "InsufficientGpus"]
    assert books.waits_s == {"TrialPending": 40.0, "InsufficientGpus": 37.0}


def test_a_job_behind_a_trial_waits_for_what_the_trial_waits_for():
    scenario = Scenario().servers(8, v100=8).setting("admission", "trial_above_gpus", 4)
    scenario.setting("admission", "trial_patience_s", 0)
    scenario.job("first", 8, at=0.0, runs_s=50.0, trial=0)
    scenario.job("wide", 8, at=10.0, runs_s=5.0).job("narrow", 1, at=10.0, runs_s=5.0)
    simulation = scenario.run(SERVICES)
    said = [(e.job_id, e.reason.code, e.waits_for, e.behind) for e in events(simulation, JobQueued)]
    assert said[:2] == [
        ("wide", "TrialPending", "InsufficientGpus", ""),
        ("narrow", "Behind", "", "wide"),
    ]
    lives = Lives()
    for envelope in simulation.log.control:
        lives.take(envelope.event, envelope.time_s)
    assert lives.jobs["narrow"].books.waits_s == {"InsufficientGpus": 40.0}
    assert lives.jobs["wide"].books.waits_s["TrialPending"] == 40.0


def test_the_books_tell_a_gang_that_starts_before_its_trial_is_over():
    simulation = ran()
    records = list(simulation.records())
    assert conservation(records).violations == []
    cheated = [record for record in records if not isinstance(record.envelope.event, TrialPassed)]
    [violation] = conservation(cheated).violations
    assert violation.message == "job wide may have 1 GPU and is given 8"
