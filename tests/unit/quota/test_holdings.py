"""What is kept of nodes and granted jobs is what a walk over them finds, whatever has changed in between."""

from __future__ import annotations

import random

import pytest

from libs.contracts.jobs import JobClass
from services.quota.core.holdings import Held, Holdings
from services.quota.core.nouns import Claim, Node
from services.quota.core.state import State

TYPES = ("k80", "v100")


def counted(state: State) -> dict[str, Held]:
    """The plain computation."""
    found: dict[str, Held] = {}
    for claim in (claim for claim in state.claims.values() if claim.granted):
        lost = [
            index
            for node_id, indices in claim.gang.items()
            for index in indices
            if not (at := state.nodes[node_id]).present or at.draining or index in at.sick or index in at.cordoned
        ]
        gpus = max(0, claim.gpus - len(lost))
        of_type = found.setdefault(claim.gpu_type, Held())
        of_type.jobs += 1
        of_type.gpus += gpus
        of_type.guaranteed_gpus += gpus if claim.guarantee_of else 0
        of_type.placed_gpus += gpus if claim.gang else 0
        of_type.victims += claim.is_victim
        of_type.victims_gpus += gpus if claim.is_victim else 0
    return found


def change(state: State, luck: random.Random) -> None:
    """Anything that can happen to one job or to one node."""
    claim_id = luck.choice(list(state.claims))
    claim, gpu_type = state.claims[claim_id], luck.choice(TYPES)
    match luck.randrange(6):
        case 0 if claim.granted:
            state.end_attempt(claim_id, 0.0)
        case 0 | 1 if not claim.granted:
            state.charge(claim_id)
            state.count_for(claim, gpu_type)
        case 2 if claim.granted:
            state.back(claim, *(("", "") if claim.guarantee_of else ("a", claim.gpu_type)))
        case 3 if claim.granted:
            state.put(claim, {} if claim.gang else {luck.choice(list(state.nodes)): list(range(claim.gpus))})
        case 4 if claim.granted:
            state.ask_back(claim, 0.0)
        case 5:
            node = state.nodes[luck.choice(list(state.nodes))]
            node.present, node.draining = luck.random() < 0.8, luck.random() < 0.2
            node.sick = {index: None for index in range(4) if luck.random() < 0.2}
            node.cordoned = {index: None for index in range(4) if luck.random() < 0.2}
            state.nodes_changed()


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_a_walk(seed: int):
    luck, state = random.Random(seed), State()
    for number in range(4):
        state.nodes[f"n{number}"] = Node(incarnation=1, gpu_types=[TYPES[number % 2]] * 4)
    for number in range(12):
        gpus = luck.randint(1, 4)
        claim = Claim(tenant="a", gpus=gpus, priority=0, seq=number, job_class=JobClass.GUARANTEED, attempt=1)
        state.claims[f"j{number}"] = claim
    for _ in range(200):
        change(state, luck)
        if luck.random() < 0.5:
            assert state.holdings.by_type() == counted(state)
            borrow = [claim for claim in state.claims.values() if claim.granted and not claim.guarantee_of]
            assert {claim.seq for claim in state.holdings.were_victims()} == {
                claim.seq for claim in borrow if claim.victim_s is not None
            }
            assert state.holdings.agrees()


def test_a_change_that_it_is_not_told_of_is_found():
    state = State(nodes={"n": Node(incarnation=1, gpu_types=["v100"] * 4)})
    state.claims["j"] = claim = Claim(tenant="a", gpus=2, priority=0, seq=0, attempt=1)
    state.charge("j")
    assert state.holdings.by_type() == {"": Held(jobs=1, gpus=2)}
    claim.gang = {"n": [0, 1]}
    assert not state.holdings.agrees()


def test_capacity_is_what_works_where_jobs_may_go():
    nodes = {
        "n0": Node(incarnation=1, gpu_types=["v100"] * 4, sick={1: None}),
        "n1": Node(incarnation=1, gpu_types=["k80"] * 4, present=False),
        "n2": Node(incarnation=1, gpu_types=["v100"] * 4, draining=True),
    }
    assert Holdings(nodes, {}).capacity == {"v100": 3, "k80": 0}


def test_claims_that_ended_are_not_remembered():
    state = State()
    known = state.holdings
    for number in range(50):
        state.claims["j"] = Claim(tenant="a", gpus=1, priority=0, seq=number, attempt=1)
        state.charge("j")
        state.end_attempt("j", 0.0)
        del state.claims["j"]
    assert state.holdings is known and known._stale == {}
