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

    def has(self, gang: list[TaskPlacement]) -> bool:
        """Whether all GPUs of the gang are still to be given."""
        for task in gang:
            free = self._free.get(task.node_id, {})
            for index in task.gpu_indices:
                if index not in free:
                    return False
        return True

    def take(self, gang: list[TaskPlacement]) -> None:
        """Give these GPUs away."""
        for task in gang:
            free = self._free[task.node_id]
            for index in task.gpu_indices:
                del free[index]

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
        stayer = _who_stays(seat, staying, board)
        if stayer is None:
            others.append(seat)
            continue
        if len(stayer.gang) > board.ideal_nodes(seat.width):
            return None
        _seat(plan, seat, stayer.gang, board, staying)
    for seat in others:
        fit = board.best(_first(state, seat))
        if fit is None or fit.nodes > board.ideal_nodes(seat.width):
            return None
        _seat(plan, seat, fit.gang, board, staying)
    return plan


def _anew(state: State, board: Board, seats: list[Seat], staying: Mapping[str, Job]) -> Plan:
    """Largest first, each where it is if that is as good as any other place."""
    plan = Plan()
    for seat in seats:
        stayer, fit = _who_stays(seat, staying, board), board.best(_first(state, seat))
        if stayer is not None and (fit is None or len(stayer.gang) <= fit.nodes):
            _seat(plan, seat, stayer.gang, board, staying)
        elif fit is not None:
            _seat(plan, seat, fit.gang, board, staying)
    return plan


def _seat(plan: Plan, seat: Seat, gang: list[TaskPlacement], board: Board, staying: Mapping[str, Job]) -> None:
    """Give the gang's GPUs to all jobs of the row; who holds them already is not interrupted."""
    board.take(gang)
    for job_id in seat.jobs:
        job = staying.get(job_id)
        if job is not None and job.gang == gang:
            plan.renewed.append(job_id)
        else:
            partners = [other for other in seat.jobs if other != job_id]
            plan.leases.append(Lease(job_id=job_id, gpu_type=seat.gpu_type, gang=gang, packed_with=partners))


def _first(state: State, seat: Seat) -> Job:
    return state.jobs[seat.jobs[0]]


def _who_stays(seat: Seat, staying: Mapping[str, Job], board: Board) -> Job | None:
    """A job of the row that holds GPUs of the type which nobody else has been given, as many as it asks for."""
    for job_id in seat.jobs:
        job = staying.get(job_id)
        if job is not None and job.gpu_type == seat.gpu_type and job.as_asked and board.has(job.gang):
            return job
    return None
