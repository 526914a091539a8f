"""How long the work of a job would have taken on its own part of the cluster, while the parts change."""

from __future__ import annotations

import pytest

from libs.contracts.gateway import PolicyChanged
from services.placement.core.mechanisms.rounds.isolation import isolated_rate
from services.placement.core.mechanisms.rounds.memory import Divided
from tests.unit.placement.rounds_case import ROUND_S, RoundsCase

RATE_PER_S = 2.0


def case_of(policy: str = "finish_time_fairness") -> RoundsCase:
    return RoundsCase(policy, n1=1)


def submit(case: RoundsCase, *job_ids: str) -> None:
    for job_id in job_ids:
        case.submit(job_id, total_steps=1e6, throughputs={"v100": RATE_PER_S})


def pass_rounds(case: RoundsCase, rounds: int) -> None:
    for _ in range(rounds):
        case.next_round()


def isolated_s(case: RoundsCase, job_id: str) -> float:
    return case.replica.state.jobs[job_id].account.isolated_s


def has_run_s(case: RoundsCase, job_id: str) -> float:
    return case.replica.state.jobs[job_id].account.steps_done / RATE_PER_S


def counted_run_s(case: RoundsCase, job_id: str) -> float:
    """What it had run up to the last question."""
    return case.replica.state.jobs[job_id].account.isolated_steps / RATE_PER_S


def test_what_was_done_alone_stays_counted_so_when_others_arrive():
    case = case_of()
    submit(case, "a")
    pass_rounds(case, 2)
    submit(case, "b", "c", "d")
    pass_rounds(case, 1)
    alone_s = 3 * ROUND_S
    assert isolated_s(case, "a") == has_run_s(case, "a") == alone_s, "the others are in the question of this moment"
    pass_rounds(case, 60)
    counted_s = {job_id: counted_run_s(case, job_id) for job_id in "abcd"}
    assert counted_s["a"] > alone_s and min(counted_s.values()) > 0
    assert isolated_s(case, "a") == pytest.approx(alone_s + 4 * (counted_s["a"] - alone_s))
    for job_id in "bcd":
        assert isolated_s(case, job_id) == pytest.approx(4 * counted_s[job_id])


def test_under_a_policy_that_does_not_see_work_nothing_is_counted_until_another_one_asks():
    case = case_of("max_min_fairness")
    submit(case, "a", "b")
    pass_rounds(case, 6)
    done_s = has_run_s(case, "a")
    assert done_s > 0 and isolated_s(case, "a") == 0.0
    case.heard(case.give(PolicyChanged(policy="finish_time_fairness", requested_by="op")))
    assert isolated_s(case, "a") == pytest.approx(2 * has_run_s(case, "a")), "at the two jobs of its first question"


@pytest.mark.parametrize(
    ("gpus", "jobs", "width", "expected"),
    [
        ({"v100": 2, "k80": 2}, 2, 1, 2.5),
        ({"v100": 2, "k80": 2}, 8, 1, 1.25),
        ({"v100": 2, "k80": 2}, 2, 4, 1.25),
        ({"p100": 4}, 1, 1, 0.0),
        ({}, 1, 1, 0.0),
        ({"v100": 2}, 0, 1, 0.0),
    ],
    ids=["a GPU each", "half a GPU each", "a gang of 4", "no GPU that it runs on", "no GPU", "no job"],
)
def test_the_rate_on_a_part(gpus: dict[str, int], jobs: int, width: int, expected: float):
    assert isolated_rate({"v100": 4.0, "k80": 1.0}, Divided(jobs=jobs, gpus=gpus), width) == expected
