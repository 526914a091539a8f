"""One step of coordination: from what is seen of a GPU and its tasks to limits, shares and facts."""

from __future__ import annotations

from libs.coordination import bursts, compute, misbehaving, telling, trading, yielding
from libs.coordination.actions import AnyAction, Step
from libs.coordination.arriving import forgetting, look, settling
from libs.coordination.limits import reconcile
from libs.coordination.memory import targets
from libs.coordination.readings import Readings
from libs.coordination.state import Coordination


def step(state: Coordination, readings: Readings, now_s: float) -> Step:
    """Take in the readings and decide; changes the state.

    The same state, readings and time give the same step, byte for byte.

    Args:
        state: of the GPU; a new one where nothing is remembered, also after the agent began anew.
        readings: the tasks on the GPU and those that wait for it; a task that is missing has left.
        now_s: by a clock that is never set.
    """
    elapsed_s = max(0.0, now_s - state.at_s) if state.readings is not None else 0.0
    look(state, readings, now_s)
    compute.account(state, elapsed_s)
    facts = [*bursts.follow(state), *trading.trade(state, now_s)]
    wanted = targets(state, state.trading.split if state.trading is not None else {})
    actions: list[AnyAction] = reconcile(state, wanted, now_s)
    actions += yielding.overdue(state, wanted, now_s)
    actions += compute.shares(state, now_s)
    paced, misdeeds = misbehaving.judge(state, now_s)
    facts = [*facts, *misdeeds, *telling.told(state, elapsed_s, now_s)]
    return Step(actions=[*actions, *paced], open_guests=compute.open_guests(state), facts=facts)


def next_s(state: Coordination, now_s: float) -> float | None:
    """When the passing of time alone may admit a task or suspend one, after a step; None: never.

    Limits and shares of tasks that run may change before.
    """
    moments = [*settling(state), *yielding.patience(state), *forgetting(state)]
    return min((since_s + for_s for since_s, for_s in moments if now_s - since_s < for_s), default=None)
