"""Events of admission, in sentences."""

from __future__ import annotations

from libs.contracts import admission
from libs.inspect.sentences.table import tells
from libs.kernel.words import counted


@tells(admission.JobAdmitted)
def _(e: admission.JobAdmitted) -> str:
    return f"admitted: {e.reason.message}"


@tells(admission.JobHeldBack)
def _(e: admission.JobHeldBack) -> str:
    return f"must wait ({e.reason.code}): {e.reason.message}"


@tells(admission.JobRejected)
def _(e: admission.JobRejected) -> str:
    return f"rejected: {e.reason.message}"


@tells(admission.TrialOrdered)
def _(e: admission.TrialOrdered) -> str:
    return f"a trial comes first: {e.reason.message}"


@tells(admission.TrialPassed)
def _(e: admission.TrialPassed) -> str:
    after = "goes on from its checkpoint" if e.checkpoint else "starts afresh"
    return f"trial passed: {e.reason.message}; the gang {after}"


@tells(admission.TrialFailed)
def _(e: admission.TrialFailed) -> str:
    did = counted(e.steps, "mini-batch", "mini-batches")
    return f"failed in its trial ({e.failure}) after {did} and {e.gpu_s:.0f} GPU seconds; its gang never started"


@tells(admission.TrialSkipped)
def _(e: admission.TrialSkipped) -> str:
    return f"runs without a trial: {e.reason.message}"
