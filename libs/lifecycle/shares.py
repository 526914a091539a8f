"""Whether a tenant has used up its quota for a job of some size, and for how long: the Philly study's two delays.

The study (Jeon et al., ATC'19, section 3.2) calls the wait of a job fair-share delay while its virtual cluster has
used up its quota, and fragmentation delay while it has not, and the job is not placed for lack of GPUs that are close
together. Here: fair-share delay while what the tenant's jobs hold and what the job asks for is more than the quota. The
quota is what the tenant is guaranteed, of all GPU types together; without guarantees, the most that it may use.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from libs.contracts.gateway import TenantConfigured


@dataclass
class Tenant:
    """A tenant's use of its quota."""

    used_gpus: int = 0
    """Held by its jobs; what guests hold is not counted."""
    quota_gpus: int | None = None
    """None: all GPUs of the cell."""
    over: dict[int, tuple[float, float]] = field(default_factory=dict)
    """{GPUs that a job asks for: (seconds for which that was too much, up to when)}."""


def quota_of(tenant: TenantConfigured) -> int | None:
    """The GPUs of the tenant's quota; None: all of the cell."""
    return sum(tenant.guarantees.values()) if tenant.guarantees else tenant.gpu_limit


class Shares:
    """The tenants of a cell."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._nodes: dict[str, int] = {}
        self._gpus = 0
        """Of all nodes."""

    def node(self, node_id: str, gpus: int, now_s: float) -> None:
        """The node has so many GPUs; 0: it has gone."""
        for tenant in self._tenants.values():
            self._settle(tenant, now_s)
        self._nodes[node_id] = gpus
        self._gpus = sum(self._nodes.values())

    def limit(self, name: str, gpus: int | None, now_s: float) -> None:
        """The tenant's quota from now on; None: all GPUs of the cell."""
        self._settled(name, now_s).quota_gpus = gpus

    def use(self, name: str, gpus: int, now_s: float) -> None:
        """A job of the tenant gets so many GPUs, or gives them back (negative)."""
        self._settled(name, now_s).used_gpus += gpus

    def has_room(self, name: str, gpus: int) -> bool:
        """Whether so many GPUs more are within the tenant's quota."""
        tenant = self._tenants.get(name, Tenant())
        return tenant.used_gpus + gpus <= self._quota(tenant)

    def over_s(self, name: str, gpus: int, now_s: float) -> float:
        """For how long so far a job of so many GPUs was more than the tenant had left.

        Counted from the first time that a size is asked for.
        """
        tenant = self._settled(name, now_s)
        return tenant.over.setdefault(gpus, (0.0, now_s))[0]

    def _settled(self, name: str, now_s: float) -> Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = Tenant()
        self._settle(tenant, now_s)
        return tenant

    def _settle(self, tenant: Tenant, now_s: float) -> None:
        quota = self._quota(tenant)
        for gpus, (sum_s, since_s) in tenant.over.items():
            passed_s = now_s - since_s if tenant.used_gpus + gpus > quota else 0.0
            tenant.over[gpus] = (sum_s + max(0.0, passed_s), max(now_s, since_s))

    def _quota(self, tenant: Tenant) -> int:
        return tenant.quota_gpus if tenant.quota_gpus is not None else self._gpus
