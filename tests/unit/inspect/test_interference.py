"""The table of interference, from events of owners and guests."""

from __future__ import annotations

from collections.abc import Iterator

from libs.contracts.agent import JobSuspended
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Envelope
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.contracts.reasons import Reason
from libs.inspect.interference import owners_of, table

WHY = Reason(code="Test", message="test")


def place(job_id: str, role: str, *gpus: int) -> JobPlaced:
    gang = [TaskPlacement(node_id="n1", gpu_indices=list(gpus), first_rank=0)]
    return JobPlaced(job_id=job_id, attempt=1, gang=gang, reason=WHY, role=role)


def end(job_id: str) -> JobSucceeded:
    return JobSucceeded(job_id=job_id, attempt=1)


def profile(job_id: str, began_s: float, minibatch_s: float) -> JobProfiled:
    return JobProfiled(
        job_id=job_id,
        attempt=1,
        window_start_s=began_s,
        window_s=5.0,
        minibatches_total=100,
        rate_per_s=1 / minibatch_s,
        loss=None,
        memory_peak_bytes=0,
        memory_min_bytes=0,
    )


def log(*told: tuple[float, Event]) -> Iterator[Envelope]:
    for number, (time_s, event) in enumerate(told):
        yield Envelope(id=str(number), event=event, source="test", time_s=time_s, sequence=number, causation_id="")


def day(owner: str, alone_s: float, beside_s: float, began_s: float = 0.0) -> list[tuple[float, Event]]:
    """An owner is measured three times alone, then three times beside a guest."""
    alone = [(began_s + 5 * n, profile(owner, began_s + 5 * (n - 1), alone_s)) for n in (1, 2, 3)]
    beside = [(began_s + 20 + 5 * n, profile(owner, began_s + 20 + 5 * (n - 1), beside_s)) for n in (1, 2, 3)]
    guest = f"guest-of-{owner}"
    return [
        (began_s, place(owner, "owner", 0)),
        *alone,
        (began_s + 20, place(guest, "guest", 0)),
        *beside,
        (began_s + 40, end(guest)),
        (began_s + 40, end(owner)),
    ]


def test_an_owner_that_guests_slow_down_is_in_the_class_of_its_slowdown():
    (owner,) = owners_of(log(*day("a", 0.500, 0.512)))
    assert (owner.job_id, owner.profiles_alone, owner.profiles_beside) == ("a", 3, 3)
    assert round(owner.slowed_ratio, 4) == 0.024 and owner.by_absolute_rule and not owner.by_relative_rule
    assert [(row.slowdown, row.by_absolute_rule, row.by_relative_rule) for row in table([owner])] == [
        ("none", 0, 1),
        ("< 1 %", 0, 0),
        ("< 2 %", 0, 0),
        ("< 3 %", 1, 0),
        ("< 4 %", 0, 0),
        (">= 4 %", 0, 0),
    ]


def test_the_papers_rule_is_lenient_where_mini_batches_are_short():
    (owner,) = owners_of(log(*day("a", 0.010, 0.015)))
    assert not owner.by_absolute_rule and owner.by_relative_rule
    assert [row.by_relative_rule for row in table([owner])] == [0, 0, 0, 0, 0, 1]


def test_a_profile_that_began_before_the_guest_came_is_of_neither_kind():
    owners = list(owners_of(log(*day("a", 0.1, 0.1), (41.0, place("b", "owner", 1)))))
    assert [(owner.profiles_alone, owner.profiles_beside) for owner in owners] == [(3, 3)]
    straddling = [*day("a", 0.1, 0.1)]
    straddling.insert(5, (22.0, profile("a", 17.0, 9.0)))
    (owner,) = owners_of(log(*straddling))
    assert owner.profiles_beside == 3 and abs(owner.slowed_ratio) < 1e-9


def test_a_suspended_guest_is_beside_no_owner():
    suspended = JobSuspended(job_id="guest-of-a", attempt=1, node_id="n1")
    told = day("a", 0.1, 0.2)
    told.insert(5, (20.0, suspended))
    assert owners_of(log(*told)) == []


def test_measurements_before_the_given_time_do_not_count():
    told = [*day("a", 0.1, 0.1), *day("b", 0.1, 0.1, began_s=100.0)]
    assert [owner.job_id for owner in owners_of(log(*told), since_s=50.0)] == ["b"]
