"""How much guests cost an owner, on a model: the target is 1 %, the bound is 4 %."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from libs.coordination.actions import SetShare
from libs.coordination.ledger import decide, scatter
from libs.coordination.settings import DEFAULTS
from libs.coordination.state import Ledger
from libs.coordination.step import step
from tests.unit.coordination.model import GB, STEP_S, Gpu, Job

MOST = 0.04


def pair(minibatch_s: Callable[[float], float], slowed: float, noise: float = 0.03) -> tuple[Gpu, Job, Job]:
    owner = Job(
        "o", guest=False, minibatch_s=minibatch_s, wanted=lambda number: 10 * GB, slowed_by_guests=slowed, noise=noise
    )
    guest = Job("g", wanted=lambda number: 4 * GB)
    return Gpu(owner, guest), owner, guest


def lost(gpu: Gpu, owner: Job, seconds: float) -> float:
    """Part of the owner's time that guests cost it from now on."""
    before_s = owner.lost_s
    gpu.run(seconds)
    return (owner.lost_s - before_s) / seconds


@pytest.mark.parametrize("minibatch_s", [0.02, 0.1, 2.0])
@pytest.mark.parametrize("slowed", [0.02, 0.3, 4.0])
def test_an_owner_loses_what_the_target_allows(minibatch_s: float, slowed: float):
    gpu, owner, guest = pair(lambda now_s: minibatch_s, slowed)
    gpu.run(60.0)
    done = guest.done
    assert max(lost(gpu, owner, 60.0) for _ in range(3)) <= MOST
    assert guest.done > done, "a guest is not closed out"


def test_a_guest_that_costs_nothing_has_most_of_the_time():
    gpu, owner, guest = pair(lambda now_s: 0.1, 0.0)
    gpu.run(60.0)
    done = guest.done
    gpu.run(60.0)
    assert (guest.done - done) * 0.1 / 60.0 > 0.5
    assert owner.closed >= 0.1 * owner.done


@pytest.mark.parametrize("factor", [0.8, 1.2, 3.0])
@pytest.mark.parametrize("minibatch_s", [0.1, 2.0])
def test_a_new_phase_of_the_owner_is_no_cost_of_guests_and_hides_none(factor: float, minibatch_s: float):
    gpu, owner, _ = pair(lambda now_s: minibatch_s * (factor if now_s > 120.0 else 1.0), 0.5)
    gpu.run(120.0)
    assert lost(gpu, owner, 60.0) <= MOST
    assert 0.0 < lost(gpu, owner, 60.0) <= MOST


def test_a_guest_that_begins_to_cost_more_is_closed():
    gpu, owner, _ = pair(lambda now_s: 0.1, 0.1)
    gpu.run(120.0)
    owner.slowed_by_guests = 2.0
    assert lost(gpu, owner, 60.0) <= MOST


def test_gates_open_for_a_grant_that_the_credit_covers():
    ledger = Ledger(minibatches=20, closed_minibatches=20, baseline=[0.1] * 10, credit_s=0.3, recent_closed=20.0)
    opened = [decide(ledger, DEFAULTS, 1.0, tenth / 10) for tenth in range(5)]
    assert opened == [True, True, False, False, False]


def test_beside_an_owner_that_scatters_guests_have_gaps_alone():
    gpu, _, guest = pair(lambda now_s: 0.1, 0.1, noise=0.8)
    gpu.run(120.0)
    assert gpu.state.ledger is not None and scatter(gpu.state.ledger.baseline) > 0.3
    assert gpu.state.occupants["g.1"].settled
    assert guest.done * 0.1 < 0.02 * 120.0, "a few calm mini-batches in a row may pass for a steady owner"


def test_the_share_grows_step_by_step_and_stays_within_an_operators_bound():
    gpu, _, guest = pair(lambda now_s: 0.05, 0.0)
    guest.share_bound = 0.3
    levels: list[float] = []
    for _ in range(200):
        gpu.run(STEP_S)
        if guest.share and (not levels or guest.share != levels[-1]):
            levels.append(guest.share)
    assert levels == [0.1, 0.2, 0.3]


def test_a_bound_of_nothing_saves_nothing_to_be_spent_when_it_is_lifted():
    gpu, owner, guest = pair(lambda now_s: 0.1, 1.0)
    gpu.run(60.0)
    guest.share_bound = 0.0
    assert lost(gpu, owner, 60.0) < 0.001
    guest.share_bound = None
    assert 0.0 < lost(gpu, owner, 5.0) <= 0.025


def test_a_guest_whose_owner_leaves_has_the_gpu():
    gpu, owner, guest = pair(lambda now_s: 0.1, 1.0)
    gpu.run(30.0)
    gpu.jobs.remove(owner)
    gpu.coordinate()
    assert (guest.share, gpu.open_guests) == (1.0, 1)
    gpu.run(1.0)
    assert guest.limit is None


def test_an_owner_that_calls_all_of_its_minibatches_closed_closes_no_guest_out():
    gpu, owner, guest = pair(lambda now_s: 0.1, 0.0)
    for _ in range(600):
        gpu.run(STEP_S)
        owner.closed = owner.done
    done = guest.done
    gpu.run(30.0)
    assert guest.done > done


def test_scatter_is_the_median_deviation_by_the_median():
    assert scatter([1.0, 1.0, 2.0, 3.0, 9.0]) == 0.5
    assert scatter([0.0, 0.0]) == 0.0


def test_shares_are_told_when_they_change_alone():
    gpu, _, _ = pair(lambda now_s: 0.1, 1.0)
    gpu.run(5.0)
    again = step(gpu.state, gpu.readings(), gpu.now_s)
    assert not [action for action in again.actions if isinstance(action, SetShare)]
