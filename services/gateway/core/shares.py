"""Virtual clusters as the read models tell of them: whether a change is possible, and what is in use, lent and owed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from libs.contracts.features import is_in_pool
from libs.contracts.gateway import ANY_TYPE, TenantConfigured
from libs.contracts.read_models import GpuRow, NodeRow, TenantRow
from libs.kernel.words import counted

Guarantees = Mapping[str, int]


class Refusal(NamedTuple):
    """Why a tenant cannot be configured so."""

    pointer: str
    """Of the field of the request."""
    message: str
    value: Any


class Use(NamedTuple):
    """GPUs of one tenant, as `sanjaya tenants` shows them."""

    guaranteed_gpus: int
    """Of its guarantees; of a tenant without one, those of the tenants below it."""
    borrowed_gpus: int
    """Granted beyond its guarantee and what the tenants above it have left of theirs."""
    lent_gpus: int
    """Of its guarantee, granted to others."""
    waiting_gpus: int
    """That its waiting jobs ask for."""
    owed_gpus: int
    """Of those, as many as are within guarantees."""


def shared_gpus(nodes: Sequence[NodeRow], gpus: Sequence[GpuRow]) -> dict[str, int]:
    """{GPU type: GPUs that tenants share}, of the types that the cell has: those of the pool for trials are none."""
    apart = {node.id for node in nodes if is_in_pool(node.features)}
    found: dict[str, int] = {}
    for gpu in gpus:
        found[gpu.gpu_type] = found.get(gpu.gpu_type, 0) + (gpu.present and gpu.node_id not in apart)
    return found


def refusal(asked: TenantConfigured, rows: Sequence[TenantRow], gpus: Guarantees, *, guests: bool) -> Refusal | None:
    """Why quota must not be asked for this; None: it may.

    Args:
        rows: the tenants as they are.
        gpus: {GPU type: GPUs that tenants share}; empty while no node has joined: nothing is held against it then.
        guests: whether there may be guests: the limits of all tenants must fit into the cell then (AntMan, OSDI'20,
            section 3.3).
    """
    tenants = {row.name: row for row in rows} | {asked.tenant: _row(asked)}
    return (
        _parent(asked, tenants)
        or _types(asked, gpus)
        or _limits(asked)
        or _above(asked, tenants)
        or (_capacity(asked, tenants, gpus) if gpus else None)
        or (_quotas(asked, tenants, sum(gpus.values())) if gpus and guests else None)
    )


def _row(asked: TenantConfigured) -> TenantRow:
    return TenantRow(
        name=asked.tenant, gpu_limit=asked.gpu_limit, parent=asked.parent, guarantees=asked.guarantees, lend=asked.lend
    )


def _parent(asked: TenantConfigured, tenants: Mapping[str, TenantRow]) -> Refusal | None:
    if not asked.parent:
        return None
    if asked.parent not in tenants:
        return Refusal("/parent", f"there is no tenant {asked.parent}: expected one of {_names(tenants)}", asked.parent)
    above = _chain(tenants, asked.parent)
    if asked.tenant in above:
        way = " below ".join(above[: above.index(asked.tenant) + 1])
        message = f"{asked.tenant} would be below itself: {way}; expected a tenant that is not below it"
        return Refusal("/parent", message, asked.parent)
    return None


def _types(asked: TenantConfigured, gpus: Guarantees) -> Refusal | None:
    if ANY_TYPE in asked.limits:
        return Refusal("/limits/any", "expected a GPU type: `gpu_limit` counts all types together", ANY_TYPE)
    fields = {"guarantees": asked.guarantees, "limits": asked.limits, "per_user": asked.per_user}
    for field, found in fields.items() if gpus else ():
        known = [*gpus, *([] if field == "limits" else [ANY_TYPE])]
        unknown = next((gpu_type for gpu_type in found if gpu_type not in known), None)
        if unknown is not None:
            message = f"no node of the cell has GPUs of type {unknown}: expected one of {', '.join(known)}"
            return Refusal(f"/{field}/{unknown}", message, unknown)
    return None


def _limits(asked: TenantConfigured) -> Refusal | None:
    total = sum(asked.guarantees.values())
    if asked.gpu_limit is not None and total > asked.gpu_limit:
        message = f"{counted(total, 'GPU is', 'GPUs are')} guaranteed: expected a limit of at least as many"
        return Refusal("/gpu_limit", message, asked.gpu_limit)
    for gpu_type, limit in asked.limits.items():
        guaranteed = asked.guarantees.get(gpu_type, 0)
        if guaranteed > limit:
            guaranteed_words = counted(guaranteed, f"GPU of type {gpu_type} is", f"GPUs of type {gpu_type} are")
            message = f"{guaranteed_words} guaranteed: expected a limit of at least as many"
            return Refusal(f"/limits/{gpu_type}", message, limit)
    return None


def _above(asked: TenantConfigured, tenants: Mapping[str, TenantRow]) -> Refusal | None:
    """The guarantees below a tenant are parts of its own, where it has one."""
    for name in (asked.parent, asked.tenant):
        whole = tenants[name].guarantees if name else {}
        children = [child for child in tenants.values() if child.parent == name]
        over = _over([_guarantee(tenants, child.name) for child in children], whole, 0) if whole else None
        if over is not None:
            parts, of_whole, gpu_type = over
            message = (
                f"tenants below {name} are guaranteed {_gpus(parts, gpu_type)}, and {name} "
                f"{of_whole}: expected at most as many ({_each(children, gpu_type)})"
            )
            return Refusal("/guarantees", message, dict(asked.guarantees))
    return None


def _capacity(asked: TenantConfigured, tenants: Mapping[str, TenantRow], gpus: Guarantees) -> Refusal | None:
    roots = [tenant for tenant in tenants.values() if not tenant.parent]
    over = _over([_guarantee(tenants, root.name) for root in roots], gpus, sum(gpus.values()))
    if over is None or not asked.guarantees:
        return None
    promised, there, gpu_type = over
    message = (
        f"all tenants together would be guaranteed {_gpus(promised, gpu_type)}, and the cell has {there}: "
        f"expected at most as many ({_each(roots, gpu_type)})"
    )
    return Refusal("/guarantees", message, dict(asked.guarantees))


def _quotas(asked: TenantConfigured, tenants: Mapping[str, TenantRow], total: int) -> Refusal | None:
    limits = {name: row.gpu_limit for name, row in tenants.items() if not row.parent and row.gpu_limit is not None}
    together = sum(limits.values())
    if asked.tenant not in limits or together <= total:
        return None
    each = ", ".join(f"{name} {limit}" for name, limit in sorted(limits.items(), key=lambda item: -item[1]))
    message = (
        f"with guests on, the limits of all tenants together must not exceed the cell: they would be {together} GPUs, "
        f"and it has {total}; lower that of one of these by {together - total}: {each}"
    )
    return Refusal("/gpu_limit", message, asked.gpu_limit)


def _over(parts: Sequence[Guarantees], whole: Guarantees, total: int) -> tuple[int, int, str] | None:
    """(promised, there are, GPU type or any) where the parts exceed the whole; None: they do not.

    Args:
        total: GPUs of whatever type, where the whole does not say so itself.
    """
    sums: dict[str, int] = {}
    for part in parts:
        for key, gpus in part.items():
            sums[key] = sums.get(key, 0) + gpus
    spare = whole.get(ANY_TYPE, 0)
    for key, gpus in sums.items():
        if key != ANY_TYPE:
            excess = gpus - whole.get(key, 0)
            spare -= max(0, excess)
            if spare < 0:
                return gpus, whole.get(key, 0) + whole.get(ANY_TYPE, 0), key
    promised = sum(sums.values())
    most = total or sum(whole.values())
    return (promised, most, ANY_TYPE) if promised > most else None


def _guarantee(tenants: Mapping[str, TenantRow], name: str) -> Guarantees:
    """The tenant's own guarantee; of one without, those of the tenants below it together."""
    if tenants[name].guarantees:
        return tenants[name].guarantees
    found: dict[str, int] = {}
    for child in tenants.values():
        if child.parent == name and child.name not in _chain(tenants, name):
            for key, gpus in _guarantee(tenants, child.name).items():
                found[key] = found.get(key, 0) + gpus
    return found


def _chain(tenants: Mapping[str, TenantRow], name: str) -> list[str]:
    found: dict[str, None] = {}
    while name in tenants and name not in found:
        found[name] = None
        name = tenants[name].parent
    return list(found)


def _names(tenants: Mapping[str, TenantRow]) -> str:
    return ", ".join(tenants)


def _gpus(gpus: int, gpu_type: str) -> str:
    return counted(gpus, "GPU") + ("" if gpu_type == ANY_TYPE else f" of type {gpu_type}")


def _each(rows: Sequence[TenantRow], gpu_type: str) -> str:
    of_type = {row.name: _part(row, gpu_type) for row in rows}
    return ", ".join(f"{name} {gpus}" for name, gpus in of_type.items() if gpus)


def _part(row: TenantRow, gpu_type: str) -> int:
    return sum(row.guarantees.values()) if gpu_type == ANY_TYPE else row.guarantees.get(gpu_type, 0)


def uses(rows: Sequence[TenantRow], total: int, waiting: Mapping[str, int]) -> dict[str, Use]:
    """What each tenant has, lends and waits for, from its granted GPUs.

    Args:
        total: GPUs of the cell.
        waiting: {tenant: GPUs that its waiting jobs ask for}.
    """
    tenants = {row.name: row for row in rows}
    guaranteed = {name: sum(_guarantee(tenants, name).values()) for name in tenants}
    parts = {
        name: max(0, guaranteed[name] - sum(guaranteed[row.name] for row in rows if row.parent == name))
        for name in tenants
    }
    left, borrowed = dict(parts), dict[str, int]()
    for row in rows:
        rest = row.granted_gpus
        for name in _chain(tenants, row.name):
            part = min(rest, left[name])
            left[name], rest = left[name] - part, rest - part
        borrowed[row.name] = rest
    lent = _lent(rows, left, max(0, sum(borrowed.values()) - max(0, total - sum(parts.values()))))
    return {
        name: Use(
            guaranteed_gpus=guaranteed[name],
            borrowed_gpus=borrowed[name] if any(guaranteed.values()) else 0,
            lent_gpus=lent.get(name, 0),
            waiting_gpus=waiting.get(name, 0),
            owed_gpus=min(waiting.get(name, 0), sum(left[above] for above in _chain(tenants, name))),
        )
        for name in tenants
    }


def _lent(rows: Sequence[TenantRow], left: Mapping[str, int], gpus: int) -> dict[str, int]:
    """The tenants with the unused guarantees that so many GPUs are of, the largest first: as quota counts them."""
    found = {}
    for row in sorted(rows, key=lambda row: -left[row.name]):
        if row.lend and (part := min(gpus, left[row.name])):
            found[row.name], gpus = part, gpus - part
    return found
