"""A decide changes the state by emitting alone: where it does otherwise, it is named."""

from __future__ import annotations

import dataclasses

import pytest

from libs.contracts.gateway import JobArrived, JobPriorityChanged
from libs.contracts.placement import StopTask
from libs.kernel.machine import Machine, Turn
from libs.testing.core_case import CoreCase, arrival
from libs.testing.purity import DecideMutates
from libs.testing.toy import TOY, ToyState


def test_a_decide_that_changes_the_state_is_named_with_the_field():
    broken: Machine[ToyState] = Machine(TOY.name)
    broken._evolves = dict(TOY.machine._evolves)

    @broken.decides(JobArrived)
    def arrived(state: ToyState, event: JobArrived, turn: Turn[ToyState]) -> None:
        state.stopped += 1

    case = CoreCase(dataclasses.replace(TOY, machine=broken))
    with pytest.raises(DecideMutates, match=r"decides on JobArrived: state.stopped is 0 by its outputs, 1 by deciding"):
        case.give(arrival("a"))


def test_a_decide_that_emits_alone_is_let_be():
    case = CoreCase(TOY)
    case.give(arrival("a"))
    case.wake()
    assert case.replica.state.stopped == 1


def test_an_order_cannot_change_a_state():
    machine: Machine[ToyState] = Machine(TOY.name)
    with pytest.raises(ValueError, match="StopTask is not on the control log and changes no state"):
        machine.evolves(StopTask)(lambda state, event, now_s: None)


def test_what_an_evolve_has_changed_is_told_to_its_decide_alone():
    machine: Machine[ToyState] = Machine(TOY.name)
    seen: list[object] = []

    @machine.evolves(JobPriorityChanged)
    def changed(state: ToyState, event: JobPriorityChanged, now_s: float) -> str:
        return "raised"

    @machine.decides(JobPriorityChanged)
    def decide(state: ToyState, event: JobPriorityChanged, turn: Turn[ToyState]) -> None:
        seen.append(turn.changed)

    case = CoreCase(dataclasses.replace(TOY, machine=machine))
    case.give(JobPriorityChanged(job_id="a", priority=1, requested_by="test"))
    assert seen == ["raised"]
