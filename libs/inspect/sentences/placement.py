"""Events of placement, in sentences."""

from __future__ import annotations

from libs.contracts import placement
from libs.inspect.sentences.table import tells
from libs.inspect.sentences.words import gpus, named, where
from libs.kernel.words import bytes_of, counted, plural, ranges


@tells(placement.JobQueued)
def _(e: placement.JobQueued) -> str:
    if e.suspended:
        return (
            f"attempt {e.attempt} stands still where it is, and waits for quota ({e.reason.code}): {e.reason.message}"
        )
    return f"attempt {e.attempt} waits for GPUs ({e.reason.code}): {e.reason.message}"


@tells(placement.AllocationRequested)
def _(e: placement.AllocationRequested) -> str:
    return f"{e.policy} is to share the cluster anew: {e.reason.message}"


@tells(placement.AllocationComputed)
def _(e: placement.AllocationComputed) -> str:
    note = f" ({e.note})" if e.note else ""
    shares, jobs = counted(len(e.shares), "share"), counted(e.jobs, "job")
    return f"{e.policy} gives {shares} to {jobs}; its objective is {e.objective:.6g}{note}"


@tells(placement.ThroughputEstimated)
def _(e: placement.ThroughputEstimated) -> str:
    measured = counted(e.evidence, "measured co-location") if e.evidence else "its rates alone"
    return f"{e.configuration} is taken to share GPUs like {e.like}, by {measured} (confidence {e.confidence:.0%})"


@tells(placement.RoundStarted)
def _(e: placement.RoundStarted) -> str:
    return f"round {e.number} begins: {counted(len(e.renewed), 'lease')} renewed, {len(e.leases)} new"


@tells(placement.TimeSliceStarted)
def _(e: placement.TimeSliceStarted) -> str:
    changes = [("suspended", e.suspended), ("resumed", [s.job_id for s in e.resumed]), ("started", e.started)]
    said = "; ".join(f"{', '.join(jobs)} {what}" for what, jobs in changes if jobs)
    return f"turn {e.number} on {', '.join(e.nodes)}: {said or 'every job goes on'} ({e.reason.message})"


@tells(placement.JobPacked)
def _(e: placement.JobPacked) -> str:
    return f"shares its GPUs with {e.with_job}, on trial: {e.reason.message}"


@tells(placement.JobUnpacked)
def _(e: placement.JobUnpacked) -> str:
    return f"does not share its GPUs with {e.with_job} any more: {e.reason.message}"


@tells(placement.GangReserved)
def _(e: placement.GangReserved) -> str:
    return f"{', '.join(e.node_ids)} reserved for it ({gpus(e.gpus_held)} free there): {e.reason.message}"


@tells(placement.GangReleased)
def _(e: placement.GangReleased) -> str:
    return f"its reservation ends: {e.reason.message}"


@tells(placement.JobPlaced)
def _(e: placement.JobPlaced) -> str:
    passes = f"; {e.passed}, which comes before it, waits on" if e.passed else ""
    delays = f"; {e.delays} has fewer free GPUs to acquire by that" if e.delays else ""
    return f"attempt {e.attempt} gets {where(e.gang)}: {e.reason.message}{passes}{delays}"


@tells(placement.DestinationReserved)
def _(e: placement.DestinationReserved) -> str:
    return f"attempt {e.attempt} is made ready on {where(e.gang)}, to take over from attempt {e.from_attempt}"


@tells(placement.JobMoved)
def _(e: placement.JobMoved) -> str:
    return f"attempt {e.attempt} takes over on {where(e.gang)}: {e.reason.message}"


@tells(placement.JobResized)
def _(e: placement.JobResized) -> str:
    return f"has {gpus(e.gpus)} instead of {e.from_gpus} ({e.reason.code})"


@tells(placement.MoveAbandoned)
def _(e: placement.MoveAbandoned) -> str:
    return f"attempt {e.from_attempt} is not moved: {e.reason.message}"


@tells(placement.UpgradeOffered)
def _(e: placement.UpgradeOffered) -> str:
    return f"attempt {e.attempt} could be guaranteed where it is: {e.reason.message}"


@tells(placement.UpgradeWithdrawn)
def _(e: placement.UpgradeWithdrawn) -> str:
    return f"attempt {e.attempt} cannot be guaranteed where it is any more: {e.reason.message}"


@tells(placement.GuestExpelled)
def _(e: placement.GuestExpelled) -> str:
    return f"attempt {e.attempt} leaves the GPUs of {e.owner_job}, which it slows down: {e.reason.message}"


@tells(placement.SetClass)
def _(e: placement.SetClass) -> str:
    return f"order to {e.node_id}: attempt {e.attempt} is {'an owner' if e.role == 'owner' else 'a guest'}"


@tells(placement.SetMemoryLimit)
def _(e: placement.SetMemoryLimit) -> str:
    bound = "no bound" if e.limit_bytes is None else f"at most {bytes_of(e.limit_bytes)}"
    return f"order to {e.node_id}: attempt {e.attempt} has {bound} of each GPU's memory"


@tells(placement.SetComputeShare)
def _(e: placement.SetComputeShare) -> str:
    bound = "no bound" if e.share_ratio is None else f"at most {e.share_ratio:.0%}"
    return f"order to {e.node_id}: attempt {e.attempt} has {bound} of each GPU's time"


@tells(placement.NodeCordoned)
def _(e: placement.NodeCordoned) -> str:
    return f"nothing new is placed on {named(e.node_id, e.gpu_indices)}: {e.reason.message}"


@tells(placement.NodeReturned)
def _(e: placement.NodeReturned) -> str:
    return f"{named(e.node_id, e.gpu_indices)} may be used again: {e.reason.message}"


@tells(placement.CheckGpus)
def _(e: placement.CheckGpus) -> str:
    return f"{named(e.node_id, e.gpu_indices)} are to be tested"


@tells(placement.JobPreempted)
def _(e: placement.JobPreempted) -> str:
    return f"attempt {e.attempt} is taken off its GPUs: {e.reason.message}"


@tells(placement.AttemptFailed)
def _(e: placement.AttemptFailed) -> str:
    return f"attempt {e.attempt} failed: {e.reason.message}"


@tells(placement.JobSucceeded)
def _(e: placement.JobSucceeded) -> str:
    return f"succeeded with attempt {e.attempt}"


@tells(placement.JobCancelled)
def _(e: placement.JobCancelled) -> str:
    return f"cancelled: {e.reason.message}"


@tells(placement.LaunchTask)
def _(e: placement.LaunchTask) -> str:
    gpus_there = f"{plural(len(e.gpu_indices), 'GPU')} {ranges(e.gpu_indices)}"
    return f"order to {e.node_id}: launch attempt {e.attempt} on {gpus_there}"


@tells(placement.StopTask)
def _(e: placement.StopTask) -> str:
    return f"order to {e.node_id}: stop attempt {e.attempt} within {e.grace_s:g} s ({e.reason.message})"


@tells(placement.SuspendTask)
def _(e: placement.SuspendTask) -> str:
    return f"order to {e.node_id}: suspend attempt {e.attempt}"


@tells(placement.ResumeTask)
def _(e: placement.ResumeTask) -> str:
    return f"order to {e.node_id}: resume attempt {e.attempt}"


@tells(placement.RestoreTask)
def _(e: placement.RestoreTask) -> str:
    sources = ", ".join(source.node_id for source in e.sources)
    return f"order to {e.node_id}: attempt {e.attempt} fetches the state of attempt {e.from_attempt} from {sources}"
