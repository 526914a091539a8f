"""Events of quota, in sentences."""

from __future__ import annotations

from libs.contracts import quota
from libs.inspect.sentences.table import tells


@tells(quota.QuotaGranted)
def _(e: quota.QuotaGranted) -> str:
    return f"attempt {e.attempt} may compete for GPUs: {e.reason.message}"


@tells(quota.QuotaDeferred)
def _(e: quota.QuotaDeferred) -> str:
    return f"attempt {e.attempt} must wait ({e.reason.code}): {e.reason.message}"


@tells(quota.QuotaReclaimed)
def _(e: quota.QuotaReclaimed) -> str:
    return f"{', '.join(victim.job_id for victim in e.victims)} give back borrowed GPUs: {e.reason.message}"


@tells(quota.OpportunityGranted)
def _(e: quota.OpportunityGranted) -> str:
    return f"attempt {e.attempt} may run as a guest: {e.reason.message}"


@tells(quota.JobUpgraded)
def _(e: quota.JobUpgraded) -> str:
    return f"attempt {e.attempt} is guaranteed from now on: {e.reason.message}"


@tells(quota.UpgradeDeclined)
def _(e: quota.UpgradeDeclined) -> str:
    return f"attempt {e.attempt} stays a guest: {e.reason.message}"
