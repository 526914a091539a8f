"""Why a job is granted, or waits, where tenants have guarantees: sentences with their numbers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from libs.contracts.gateway import ANY_TYPE
from libs.contracts.reasons import PendingReason, Reason
from libs.kernel.words import counted
from services.quota.core.nouns import Claim
from services.quota.core.shares import Backing, Blocked
from services.quota.core.state import State


def guaranteed(state: State, claim: Claim, backing: Backing) -> Reason:
    """It is within a guarantee."""
    guarantee = state.tree.net(backing.tenant).get(backing.key, 0)
    taken = state.tenant(backing.tenant).taken.get(backing.key, 0)
    return Reason(
        code="WithinGuarantee",
        message=(
            f"tenant {backing.tenant} has {taken} of {counted(guarantee, 'guaranteed GPU')}{_of(backing.key)} in use; "
            f"{claim.gpus} more for tenant {claim.tenant}"
        ),
        numbers={"taken_gpus": taken, "guaranteed_gpus": guarantee, "gpus": claim.gpus},
    )


def borrowed(state: State, claim: Claim, gpu_type: str, lenders: Mapping[str, int]) -> Reason:
    """It has what others do not use."""
    tenant = state.tenant(claim.tenant)
    lent_by = ", ".join(f"{gpus} of {name}" for name, gpus in lenders.items()) or "of no guarantee"
    return Reason(
        code="Borrowed",
        message=(
            f"{counted(claim.gpus, 'GPU')}{_of(gpu_type)} beyond the guarantees of tenant {claim.tenant}, borrowed "
            f"({lent_by}); it had borrowed {tenant.borrowed_gpus} before, at weight {tenant.weight:g}"
        ),
        numbers={"gpus": claim.gpus, "borrowed_gpus": tenant.borrowed_gpus, "weight": tenant.weight},
    )


def exceeds(claim: Claim, blocked: Blocked) -> Reason:
    """A limit holds it up."""
    limited = f"user {blocked.user} of tenant {blocked.tenant}" if blocked.user else f"tenant {blocked.tenant}"
    return Reason(
        code=PendingReason.EXCEEDS_QUOTA,
        message=(
            f"{limited} uses {blocked.used_gpus} of at most {counted(blocked.limit_gpus, 'GPU')}{_of(blocked.of)}; "
            f"the job asks for {claim.gpus}"
        ),
        numbers={"used_gpus": blocked.used_gpus, "limit_gpus": blocked.limit_gpus, "gpus": claim.gpus},
    )


def short(claim: Claim, backing: Backing, *, is_coming: bool, is_lent: bool) -> Reason:
    """It is within a guarantee, and too few GPUs are left."""
    wants = f"{counted(claim.gpus, 'GPU')}{_of(backing.gpu_type)} within the guarantee of tenant {backing.tenant}"
    if is_coming:
        message = f"{wants}; jobs that have borrowed are giving them back"
        return Reason(code=PendingReason.WAITING_FOR_VICTIMS, message=message, numbers={"gpus": claim.gpus})
    rest = "others have borrowed them, and the first that end give them back"
    message = f"{wants}; {rest if is_lent else 'jobs within guarantees have what can be used, and it waits for ends'}"
    return Reason(code=PendingReason.INSUFFICIENT_GPUS, message=message, numbers={"gpus": claim.gpus})


def beyond(claim: Claim, usable_gpus: int) -> Reason:
    """All that can be used is not enough for it."""
    return Reason(
        code=PendingReason.HEALTHY_GPUS_MISSING,
        message=(
            f"{counted(claim.gpus, 'GPU')} of one type; the cell has {usable_gpus} that are healthy, not cordoned, and "
            "on nodes that take new jobs"
        ),
        numbers={"gpus": claim.gpus, "usable_gpus": usable_gpus},
    )


def lent_out(state: State, claim: Claim) -> Reason:
    """Its tenant's guarantee is in use, and so is the rest."""
    tenant = state.tenant(claim.tenant)
    if not tenant.borrows:
        message = (
            f"the guarantee of tenant {claim.tenant} is in use, and it does not borrow; the job asks for {claim.gpus}"
        )
    else:
        message = (
            f"tenant {claim.tenant} has {tenant.guaranteed_gpus} GPUs within guarantees and has borrowed "
            f"{tenant.borrowed_gpus}; of the rest too few are free for the {claim.gpus} that the job asks for"
        )
    return Reason(
        code=PendingReason.FAIR_SHARE,
        message=message,
        numbers={
            "guaranteed_gpus": tenant.guaranteed_gpus,
            "borrowed_gpus": tenant.borrowed_gpus,
            "gpus": claim.gpus,
        },
    )


def behind(first: str, reason: Reason) -> Reason:
    """The job that goes first in its tenant waits for this reason."""
    return msgspec.structs.replace(reason, message=f"behind {first} of its tenant: {reason.message}")


def _of(gpu_type: str) -> str:
    return "" if gpu_type in ("", ANY_TYPE) else f" of type {gpu_type}"
