"""Which jobs get the GPUs of the cell where tenants have guarantees (Philly study, ATC'19, section 2.3).

1. Jobs within a guarantee, in order of arrival over all tenants, or by weight where too little is left for all
   guarantees (`precedence.py`). The first for which too few GPUs are left keeps those that there are, and what was lent
   is reclaimed for it (`reclaiming.py`). One that is larger than all that can be used keeps none: it waits for that.
2. What is left is lent at once: to the tenant that has borrowed least for its weight, in the tenant's own order.

Granted jobs never ask for more GPUs than the cell has, so that what one has borrowed is a GPU that it has to give back.
A job passes no other of its tenant, but for one that no guarantee could ever back, and one that is larger than all
that can be used. A borrower passes another tenant's gang only while that would not fit even if nothing was lent: a gang
that waits for borrowers alone is passed by none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from libs.contracts.quota import BORROWED, GUARANTEED, QuotaDeferred, QuotaGranted
from libs.contracts.reasons import Reason
from libs.kernel.machine import Turn
from services.quota.core import because, shares
from services.quota.core.cell import Cell
from services.quota.core.holdings import NOTHING
from services.quota.core.nouns import Claim
from services.quota.core.precedence import Place, in_order
from services.quota.core.reclaiming import Wanting, reclaim
from services.quota.core.shares import Backing, Blocked, Drafted
from services.quota.core.state import State


class Verdict(NamedTuple):
    """Why a job that was looked at waits."""

    share: str
    """From which share it would be; empty: a limit holds it up."""
    blocked: Blocked | None = None
    backing: Backing | None = None
    is_too_large: bool = False
    """For all that can be used of the cell, as things are."""

    @property
    def may_be_passed(self) -> bool:
        """Whether it waits for something that others of its tenant do not wait for."""
        return self.is_too_large or (self.blocked is not None and (bool(self.blocked.user) or self.blocked.is_for_good))


class Round:
    """One look at all that wait: what each job gets, or why it waits on."""

    def __init__(self, state: State, turn: Turn[State]) -> None:
        self._state, self._turn = state, turn
        self._cell, self._drafted = Cell(state), Drafted()
        self._verdicts: dict[str, Verdict] = {}

    def gives(self) -> bool:
        """Grant what can be granted now, and reclaim what is owed.

        Returns:
            Whether all were looked at; else a guarantee backs one that was behind a job that has borrowed now, and
            another round is to see to that before more is lent.
        """
        before = dict(self._cell.free)
        wanting = self._serve_guarantees()
        reclaim(self._state, self._cell.total, before, wanting, self._turn)
        return self._lend()

    def _serve_guarantees(self) -> list[Wanting]:
        """Grant to jobs within guarantees.

        Returns:
            All of them in order, those that were granted too.
        """
        state, cell, wanting = self._state, self._cell, list[Wanting]()
        for _, job_id, found in in_order(state, self._backed(), cell.total):
            claim = state.claims[job_id]
            cell.take(found.gpu_type, claim.gpus, guaranteed=True)
            wanting.append(Wanting(job_id, found.gpu_type, claim.gpus))
            if cell.free[found.gpu_type] >= 0:
                self._drafted.drop(claim, found)
                self._grant(job_id, claim, found)
                del self._verdicts[job_id]
        return wanting

    def _backed(self) -> list[list[Place]]:
        """Of each tenant the jobs that are within a guarantee, in its order.

        What a guarantee has left goes by arrival where it is that of several tenants, the one above them.
        """
        names, held_up = list(self._state.tenants), dict[str, None]()
        found: dict[str, list[Place]] = {name: [] for name in names}
        verdicts: dict[str, dict[str, Verdict]] = {name: {} for name in names}
        for latest, name, job_id in merge(*(self._line(name, held_up) for name in names)):
            verdict = self._first_look(job_id)
            if verdict is not None:
                verdicts[name][job_id] = verdict
            if verdict is not None and verdict.backing is not None:
                found[name].append(Place(latest, job_id, verdict.backing))
            elif self._holds_up(job_id, verdict):
                held_up[name] = None
        for of_tenant in verdicts.values():
            self._verdicts |= of_tenant
        return list(found.values())

    def _line(self, name: str, held_up: Mapping[str, None]) -> Iterator[tuple[int, str, str]]:
        """The tenant's jobs in its order, until one holds the others up: the order of arrival of the last so far, the
        tenant, the job."""
        latest = 0
        for _, seq, job_id in list(self._state.tenant(name).waiting):
            latest = max(latest, seq)
            yield latest, name, job_id
            if name in held_up:
                return

    def _first_look(self, job_id: str) -> Verdict | None:
        """Draft the job if a guarantee backs it; None: whether it may borrow is not looked at yet."""
        state, claim = self._state, self._state.claims[job_id]
        types, stop = self._open_types(claim)
        if not types:
            return Verdict("", stop)
        large_enough = [gpu_type for gpu_type in types if self._cell.total.get(gpu_type, 0) >= claim.gpus]
        backing = shares.backing(state, claim, large_enough, self._drafted)
        if backing is not None:
            self._drafted.add(claim, backing)
            return Verdict(GUARANTEED, backing=backing)
        is_too_large = not large_enough and shares.can_be_backed(state, claim)
        return Verdict(GUARANTEED, is_too_large=True) if is_too_large else None

    def _holds_up(self, job_id: str, verdict: Verdict | None) -> bool:
        """Whether no later job of its tenant is within a guarantee while this one, that none backs now, waits."""
        if verdict is None:
            return shares.can_be_backed(self._state, self._state.claims[job_id])
        return not verdict.may_be_passed

    def _open_types(self, claim: Claim) -> tuple[list[str], Blocked | None]:
        """The GPU types of which no limit keeps the claim, most free ones first; if there is none, such a limit."""
        state = self._state
        too_large = shares.too_large(state, claim)
        if too_large is not None:
            return [], too_large
        types = self._cell.by_room(shares.types_for(state, claim))
        stops = {gpu_type: shares.blocked(state, claim, gpu_type, self._drafted) for gpu_type in types}
        return [gpu_type for gpu_type in types if stops[gpu_type] is None], stops[types[0]]

    def _lend(self) -> bool:
        """Lend what guarantees leave, until no tenant that waits may have any of it; whether it came to that."""
        state = self._state
        self._cell.keep_what_is_not_lent(state)
        lines = {name: self._borrowers(name) for name in state.tenants}
        heads = {name: job_id for name, line in lines.items() if (job_id := next(line, None)) is not None}
        while heads:
            name = min(heads, key=lambda name: self._has_borrowed(name, heads[name]))
            job_id = heads.pop(name)
            if not self._borrows(name, job_id):
                continue
            if state.claims[job_id].granted and self._has_held_up(name, state.claims[job_id]):
                return False
            if (following := next(lines[name], None)) is not None:
                heads[name] = following
        return True

    def _has_held_up(self, name: str, claim: Claim) -> bool:
        """Whether a guarantee backs a job of the tenant that was not looked at, because this one waited before it."""
        if not shares.can_be_backed(self._state, claim):
            return False
        for _, _, job_id in list(self._state.tenant(name).waiting):
            known = self._verdicts.get(job_id)
            verdict = known or self._first_look(job_id)
            if verdict is not None and verdict.backing is not None:
                if known is None:
                    return True
            elif self._holds_up(job_id, verdict):
                return False
        return False

    def _borrows(self, name: str, job_id: str) -> bool:
        """Lend to the job if it can be.

        Returns:
            Whether the next job of its tenant may be looked at.
        """
        state, cell = self._state, self._cell
        claim, borrows = state.claims[job_id], state.tenant(name).borrows
        types, stop = self._open_types(claim)
        fitting = next((gpu_type for gpu_type in types if borrows and cell.free.get(gpu_type, 0) >= claim.gpus), None)
        if fitting is not None:
            cell.take(fitting, claim.gpus)
            self._grant(job_id, claim, Backing(fitting, "", ""))
            return True
        is_too_large = all(cell.total.get(gpu_type, 0) < claim.gpus for gpu_type in types)
        verdict = Verdict(BORROWED, is_too_large=is_too_large) if types else Verdict("", stop)
        self._verdicts[job_id] = verdict
        if borrows and types:
            cell.hold_for(claim, types)
        return verdict.may_be_passed

    def _borrowers(self, name: str) -> Iterator[str]:
        """The tenant's jobs that no guarantee backs now, in order."""
        for _, _, job_id in list(self._state.tenant(name).waiting):
            verdict = self._verdicts.get(job_id)
            if verdict is None:
                yield job_id
            elif verdict.blocked is not None and not verdict.may_be_passed:
                return

    def _has_borrowed(self, name: str, job_id: str) -> tuple[float, int]:
        tenant = self._state.tenant(name)
        return tenant.borrowed_gpus / tenant.weight, self._state.claims[job_id].seq

    def _grant(self, job_id: str, claim: Claim, backing: Backing) -> None:
        state, is_lent = self._state, not backing.tenant
        lenders = self._cell.lenders(state, claim.gpus, backing.gpu_type) if is_lent else {}
        self._turn.emit(
            QuotaGranted(
                job_id=job_id,
                attempt=claim.attempt,
                tenant=claim.tenant,
                gpus=claim.gpus,
                share=BORROWED if is_lent else GUARANTEED,
                guarantee_of=backing.tenant,
                gpu_type=backing.gpu_type,
                borrowed_from=lenders,
                reason=because.borrowed(state, claim, backing.gpu_type, lenders)
                if is_lent
                else because.guaranteed(state, claim, backing),
            )
        )

    def tell(self, asking: Sequence[str]) -> None:
        """Jobs that were looked at and wait hear why, where that has changed.

        Args:
            asking: jobs that were not told anything yet. One that was not reached hears what is ahead of it.
        """
        leaving = [gpu_type for gpu_type, held in self._state.holdings.by_type().items() if held.victims]
        for job_id in dict.fromkeys([*self._verdicts, *asking]):
            claim = self._state.claims[job_id]
            if claim.granted or claim.guest:
                continue
            share, reason = self._told(job_id, claim, leaving)
            if reason.code != claim.told:
                self._turn.emit(QuotaDeferred(job_id=job_id, attempt=claim.attempt, reason=reason, share=share))

    def _told(self, job_id: str, claim: Claim, leaving: Sequence[str]) -> tuple[str, Reason]:
        """From which share the job would be, and why it waits: one that was not reached, as the one before it."""
        state, verdict = self._state, self._verdicts.get(job_id)
        if verdict is not None:
            return verdict.share, self._why(claim, verdict, leaving)
        first = self._ahead_of(claim)
        if first is None:
            return BORROWED, because.lent_out(state, claim)
        verdict = self._verdicts[first]
        return verdict.share, because.behind(first, self._why(state.claims[first], verdict, leaving))

    def _ahead_of(self, claim: Claim) -> str | None:
        """The last job of the tenant that was looked at and waits: it holds the others up."""
        waiting = self._state.tenant(claim.tenant).waiting
        found = (job_id for _, _, job_id in reversed(waiting) if job_id in self._verdicts)
        return next((job_id for job_id in found if not self._verdicts[job_id].may_be_passed), None)

    def _why(self, claim: Claim, verdict: Verdict, leaving: Sequence[str]) -> Reason:
        if verdict.blocked is not None:
            return because.exceeds(claim, verdict.blocked)
        if verdict.is_too_large:
            usable = (self._cell.total.get(gpu_type, 0) for gpu_type in shares.types_for(self._state, claim))
            return because.beyond(claim, max(usable))
        if verdict.backing is not None:
            gpu_type = verdict.backing.gpu_type
            held = self._state.holdings.by_type().get(gpu_type, NOTHING)
            is_lent = held.gpus > held.guaranteed_gpus
            return because.short(claim, verdict.backing, is_coming=gpu_type in leaving, is_lent=is_lent)
        return because.lent_out(self._state, claim)


def share_out(state: State, turn: Turn[State], asking: Sequence[str] = ()) -> None:
    """Grant, reclaim and lend as the cell is now; `asking`: jobs that were not told anything yet."""
    look = Round(state, turn)
    while not look.gives():
        look = Round(state, turn)
    look.tell(asking)
