"""What bounds a tenant's jobs: its own limits, and those of the tenants above it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from libs.contracts.gateway import ANY_TYPE
from libs.contracts.jobs import JobSpec


class Share(msgspec.Struct, kw_only=True):
    """What bounds a tenant's jobs beside its own limit."""

    parent: str = ""
    limits: dict[str, int] = {}
    """{GPU type: most GPUs of it}."""
    per_user: dict[str, int] = {}
    """{GPU type, or any: most GPUs of one user's jobs}."""

    def bounds(self, spec: JobSpec) -> list[int]:
        """Most GPUs of one job by each of these limits, where it may have no type without one."""
        found = [self.per_user[ANY_TYPE]] if ANY_TYPE in self.per_user else []
        types = spec.gpus.types
        found += [
            max(most[gpu_type] for gpu_type in types)
            for most in (self.limits, self.per_user)
            if types and all(gpu_type in most for gpu_type in types)
        ]
        return found


NO_SHARE = Share()


def least_limit(spec: JobSpec, limits: Mapping[str, int], shares: Mapping[str, Share]) -> int | None:
    """Most GPUs of one job by the limits of its tenant and of those above it; None: there is none.

    Args:
        spec: of the job.
        limits: {tenant: most GPUs of its jobs together}.
        shares: {tenant: its place in the tree and its other limits}.
    """
    found, seen, name = [], dict[str, None](), spec.tenant
    while name and name not in seen:
        seen[name] = None
        share = shares.get(name, NO_SHARE)
        found += [limits[name]] if name in limits else []
        found += share.bounds(spec)
        name = share.parent
    return min(found, default=None)
