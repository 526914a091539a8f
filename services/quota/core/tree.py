"""The tree of tenants: what is above and below each, what of its guarantee is its own, and what counts at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from libs.contracts.gateway import ANY_TYPE
from services.quota.core.nouns import Tenant


class Tree:
    """Answers are kept.

    Derived of tenants, and in no snapshot. Its answers are those of a new one until a tenant is configured: then
    another one is made. One that is merely seen for the first time has no place in the tree yet, and changes none.
    """

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self._tenants = tenants
        self._above: dict[str, Sequence[str]] = {}
        self._below: dict[str, Sequence[str]] = {}
        self._net: dict[str, Mapping[str, int]] = {}

    @cached_property
    def has_guarantees(self) -> bool:
        """Whether any tenant has a guarantee."""
        return any(tenant.guarantees for tenant in self._tenants.values())

    @cached_property
    def counts_types(self) -> bool:
        """Whether any tenant has a share or a limit that goes by GPU type or by user."""
        return any(tenant.guarantees or tenant.limits or tenant.per_user for tenant in self._tenants.values())

    def chain(self, name: str) -> Sequence[str]:
        """The tenant and those above it, up to the root."""
        if (known := self._above.get(name)) is None:
            known = self._above[name] = _chain(self._tenants, name)
        return known

    def below(self, name: str) -> Sequence[str]:
        """The tenant and all that are below it."""
        if (known := self._below.get(name)) is None:
            known = self._below[name] = _below(self._tenants, name)
        return known

    def net(self, name: str) -> Mapping[str, int]:
        """{GPU type, or any: GPUs of its guarantee that are not a guarantee of a tenant below it}."""
        if (known := self._net.get(name)) is None:
            known = self._net[name] = _net(self._tenants, name)
        return known

    def agrees(self) -> bool:
        """Whether its answers are those of a new one."""
        tenants, fresh = self._tenants, Tree(self._tenants)
        return (
            self.has_guarantees == fresh.has_guarantees
            and self.counts_types == fresh.counts_types
            and all(known == _chain(tenants, name) for name, known in self._above.items())
            and all(known == _below(tenants, name) for name, known in self._below.items())
            and all(known == _net(tenants, name) for name, known in self._net.items())
        )


def _chain(tenants: Mapping[str, Tenant], name: str) -> Sequence[str]:
    found: dict[str, None] = {}
    while name and name not in found:
        found[name] = None
        tenant = tenants.get(name)
        name = tenant.parent if tenant is not None else ""
    return list(found)


def _below(tenants: Mapping[str, Tenant], name: str) -> Sequence[str]:
    found, open_ends = {name: None}, [name]
    while open_ends:
        above = open_ends.pop()
        children = [child for child, tenant in tenants.items() if tenant.parent == above and child not in found]
        found.update(dict.fromkeys(children))
        open_ends += children
    return list(found)


def _net(tenants: Mapping[str, Tenant], name: str) -> Mapping[str, int]:
    tenant = tenants.get(name)
    rest = dict(tenant.guarantees) if tenant is not None else {}
    for child in tenants.values():
        if child.parent == name:
            for key, gpus in child.guarantees.items():
                part = key if key in rest else ANY_TYPE
                rest[part] = max(0, rest.get(part, 0) - gpus)
    return {key: gpus for key, gpus in rest.items() if gpus}
