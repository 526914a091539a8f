"""What an allocation policy is: one question, one answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from libs.policies.policy import Kind, Policy, Way
from libs.policies.problem import Problem, Solution


@dataclass(frozen=True, kw_only=True)
class AllocationPolicy(Policy):
    """How much of each GPU type's time each job gets (Gavel, OSDI'20, section 4)."""

    kind: str = Kind.SHARES
    ways: tuple[Way, ...] = (Way.RESTART, Way.SUSPEND, Way.PREEMPT)
    moves_live: bool = False
    solve: Callable[[Problem], Solution]
    """The allocation of a problem that `check_problem` lets through."""
    sees_work: bool = False
    """Whether the answer depends on how far each job is: then it is asked again at intervals."""
    sees_entities: bool = False
    """Whether jobs belong to entities."""
