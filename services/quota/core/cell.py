"""The GPUs of the cell on which nothing is granted, as one round gives them away."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.gateway import ANY_TYPE
from services.quota.core.nouns import Claim
from services.quota.core.state import State


class Cell:
    """Per GPU type: what there is, what is free, and what jobs within guarantees have."""

    def __init__(self, state: State) -> None:
        self.total = state.holdings.capacity
        by_type = state.holdings.by_type()
        self.free = self.total | {
            gpu_type: self.total.get(gpu_type, 0) - of_type.gpus for gpu_type, of_type in by_type.items()
        }
        """Below 0: more is granted than there is, because GPUs have gone."""
        self._guaranteed = {gpu_type: of_type.guaranteed_gpus for gpu_type, of_type in by_type.items()}

    def take(self, gpu_type: str, gpus: int, *, guaranteed: bool = False) -> None:
        """So many GPUs are granted, or wanted by jobs within guarantees."""
        self.free[gpu_type] = self.free.get(gpu_type, 0) - gpus
        if guaranteed:
            self._guaranteed[gpu_type] = self._guaranteed.get(gpu_type, 0) + gpus

    def by_room(self, types: Sequence[str]) -> list[str]:
        """The types, those of which most GPUs are free first."""
        return sorted(types, key=lambda gpu_type: -self.free.get(gpu_type, 0))

    def keep_what_is_not_lent(self, state: State) -> None:
        """What tenants that do not lend leave of their guarantees is free for nothing else."""
        for name, tenant in state.tenants.items():
            for key, gpus in state.tree.net(name).items() if not tenant.lends else ():
                unused = max(0, gpus - tenant.taken.get(key, 0))
                for gpu_type in list(self.free) if key == ANY_TYPE else [key]:
                    self.free[gpu_type] = self.free.get(gpu_type, 0) - unused

    def hold_for(self, claim: Claim, types: Sequence[str]) -> None:
        """A gang that would fit if nothing was lent gets what becomes free: nothing is lent past it."""
        for gpu_type in types:
            if self.total.get(gpu_type, 0) - self._guaranteed.get(gpu_type, 0) >= claim.gpus:
                self.free[gpu_type] = min(0, self.free.get(gpu_type, 0))
                return

    def lenders(self, state: State, gpus: int, gpu_type: str) -> dict[str, int]:
        """{tenant: GPUs of its guarantee} of so many that were just taken: those that no guarantee names first, then of
        the largest unused guarantees."""
        unused = {name: _unused(state, name, gpu_type) for name, tenant in state.tenants.items() if tenant.lends}
        of_none = max(0, self.free.get(gpu_type, 0) + gpus - sum(unused.values()))
        rest, found = max(0, gpus - of_none), dict[str, int]()
        for name in sorted(unused, key=lambda name: -unused[name]):
            part = min(rest, unused[name])
            if part:
                found[name], rest = part, rest - part
        return found


def _unused(state: State, name: str, gpu_type: str) -> int:
    guarantee, taken = state.tree.net(name), state.tenant(name).taken
    return sum(max(0, guarantee.get(key, 0) - taken.get(key, 0)) for key in (gpu_type, ANY_TYPE))
