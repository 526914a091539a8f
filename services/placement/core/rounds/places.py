"""Where the chosen jobs go: leases are renewed where that is possible, large gangs are placed first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import Lease
from services.placement.core import gangs
from services.placement.core.rounds.question import Offered
from services.placement.core.rounds.selection import Seat
from services.placement.core.state import Job, State


@dataclass
class Plan:
    """The places of one round."""

    renewed: list[str] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)


class Board:
    """The GPUs that may be given away, as they will be when everybody without a lease has left."""

    def __init__(self, state: State, gpu_type: str, offered: Mapping[str, Sequence[int]]) -> None:
        self._state, self.gpu_type = state, gpu_type
        self._free = {node_id: dict.fromkeys(indices) for node_id, indices in offered.items()}
        self._largest = max(map(len, self._free.values()), default=1)

    def take(self, gang: list[TaskPlacement]) -> bool:
        """Give the gang's GPUs away; or none of them, if one has been given to somebody else."""
        for task in gang:
            free = self._free.get(task.node_id)
            if free is None:
                return False
            for index in task.gpu_indices:
                if index not in free:
                    return False
        for task in gang:
            free = self._free[task.node_id]
            for index in task.gpu_indices:
                del free[index]
        return True

    def best(self, job: Job) -> gangs.Fit | None:
        """The best place among what is left."""
        free = [(self._state.nodes[n], list(indices)) for n, indices in self._free.items() if indices]
        return gangs.best_of_type(job.spec.gpus, self.gpu_type, free)

    def ideal_nodes(self, width: int) -> int:
        """On how few servers of the common size so many GPUs fit."""
        return -(-width // self._largest)


def assign(state: State, chosen: Sequence[Seat], staying: Mapping[str, Job], gpus: Offered) -> Plan:
    """Places for the chosen rows; `staying`: jobs that hold GPUs and may keep them, by id."""
    plan = Plan()
    by_type: dict[str, list[Seat]] = {}
    for seat in chosen:
        by_type.setdefault(seat.gpu_type, []).append(seat)
    for gpu_type in sorted(by_type):
        by_name = sorted(by_type[gpu_type], key=attrgetter("jobs"))
        seats = sorted(by_name, key=attrgetter("width"), reverse=True)
        board = partial(Board, state, gpu_type, gpus.get(gpu_type, {}))
        part = _renewing(state, board(), seats, staying) or _anew(state, board(), seats, staying)
        plan.renewed += part.renewed
        plan.leases += part.leases
    return plan


def _renewing(state: State, board: Board, seats: list[Seat], staying: Mapping[str, Job]) -> Plan | None:
    """Everybody who can stay stays; None when that leaves a gang on more servers than necessary."""
    plan, others = Plan(), []
    for seat in seats:
        gang = _kept(seat, staying, board)
        if gang is None:
            others.append(seat)
        elif len(gang) > 1 and len(gang) > board.ideal_nodes(seat.width):
            return None
        else:
            _seat(plan, seat, gang, staying)
    for seat in others:
        fit = board.best(_first(state, seat))
        if fit is None or fit.nodes > board.ideal_nodes(seat.width):
            return None
        board.take(fit.gang)
        _seat(plan, seat, fit.gang, staying)
    return plan


def _anew(state: State, board: Board, seats: list[Seat], staying: Mapping[str, Job]) -> Plan:
    """Largest first, each where it is if that is as good as any other place."""
    plan = Plan()
    for seat in seats:
        fit = board.best(_first(state, seat))
        gang = _kept(seat, staying, board, fit.nodes if fit is not None else None)
        if gang is not None:
            _seat(plan, seat, gang, staying)
        elif fit is not None:
            board.take(fit.gang)
            _seat(plan, seat, fit.gang, staying)
    return plan


def _seat(plan: Plan, seat: Seat, gang: list[TaskPlacement], staying: Mapping[str, Job]) -> None:
    """All jobs of the row get the gang's GPUs; who holds them already is not interrupted."""
    for job_id in seat.jobs:
        job = staying.get(job_id)
        if job is not None and job.gang == gang:
            plan.renewed.append(job_id)
        else:
            partners = [other for other in seat.jobs if other != job_id]
            plan.leases.append(Lease(job_id=job_id, gpu_type=seat.gpu_type, gang=gang, packed_with=partners))


def _first(state: State, seat: Seat) -> Job:
    return state.jobs[seat.jobs[0]]


def _kept(seat: Seat, staying: Mapping[str, Job], board: Board, nodes: int | None = None) -> list[TaskPlacement] | None:
    """The GPUs of the type that a job of the row holds, as many as it asks for: taken, if nobody has been given them.

    Args:
        nodes: on so many servers at most.
    """
    for job_id in seat.jobs:
        job = staying.get(job_id)
        if job is None or job.gpu_type != seat.gpu_type or not job.as_asked:
            continue
        if (nodes is None or len(job.gang) <= nodes) and board.take(job.gang):
            return job.gang
    return None
