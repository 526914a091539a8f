"""Every event in one sentence, for the story and for people."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from libs.contracts import (
    admission,
    agent,
    failure_analysis,
    gateway,
    introspection,
    migration,
    placement,
    quota,
    runtime,
    sweeps,
)
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.features import pool_of
from libs.contracts.groups import GroupChange
from libs.kernel.words import bytes_of, counted, plural

Say = Callable[[Any], str]
_SAY: dict[type[Event], Say] = {}


_MEASURED = "is one of many measurements of a short-lived topic, which no story tells; JobProfiled sums them up"
UNTOLD: dict[type[Event], str] = {
    agent.GpuSampled: _MEASURED,
    agent.JobLogged: "is what the job itself says; `sanjaya logs` shows it",
    agent.MinibatchProfiled: _MEASURED,
    agent.TaskSampled: _MEASURED,
    agent.NodeHeartbeat: "says that nothing has happened; NodeLost tells its absence",
    introspection.WindowClosed: _MEASURED,
}
"""{event type without a sentence: why}. A type that has neither a sentence nor a line here fails a test."""


def sentence(event: Event) -> str:
    """What the event says, without its subject's id where the story is about the subject."""
    say = _SAY.get(type(event))
    return say(event) if say is not None else f"{type(event).__name__} ({event.wire_type})"


def says(cls: type[Event]) -> bool:
    """Whether there is a sentence for events of this class."""
    return cls in _SAY


def _on(cls: type[Event]) -> Callable[[Say], Say]:
    def register(say: Say) -> Say:
        _SAY[cls] = say
        return say

    return register


def gpus(count: int) -> str:
    """`1 GPU`, `4 GPUs`."""
    return counted(count, "GPU")


def where(gang: list[TaskPlacement]) -> str:
    """`n1:0-3, n2:0,2`."""
    return ", ".join(f"{task.node_id}:{_ranges(task.gpu_indices)}" for task in gang)


def _ranges(indices: list[int]) -> str:
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _named(node_id: str, indices: list[int]) -> str:
    """GPUs by their names."""
    return f"{plural(len(indices), 'GPU')} {', '.join(f'{node_id}:{index}' for index in indices)}"


def _how(exit_code: int | None, signal: int | None) -> str:
    return f"signal {signal}" if signal is not None else f"exit code {exit_code}"


@_on(gateway.JobArrived)
def _(e: gateway.JobArrived) -> str:
    name, spec = e.spec.name, e.spec
    return f"{e.submitted_by or 'a user'} submits {name!r} for tenant {spec.tenant}: {gpus(spec.gpus.count)}"


@_on(gateway.JobCancelRequested)
def _(e: gateway.JobCancelRequested) -> str:
    return f"{e.requested_by or 'a user'} wants it cancelled{f' ({e.note})' if e.note else ''}"


@_on(gateway.JobPauseRequested)
def _(e: gateway.JobPauseRequested) -> str:
    return f"{e.requested_by or 'a user'} pauses it"


@_on(gateway.JobResumeRequested)
def _(e: gateway.JobResumeRequested) -> str:
    return f"{e.requested_by or 'a user'} lets it go on"


@_on(gateway.JobPriorityChanged)
def _(e: gateway.JobPriorityChanged) -> str:
    return f"{e.requested_by or 'a user'} sets its priority to {e.priority}"


@_on(gateway.JobMaxGpusChanged)
def _(e: gateway.JobMaxGpusChanged) -> str:
    return f"{e.requested_by or 'a user'} lets it have at most {counted(e.max_gpus, 'GPU')}"


@_on(gateway.LimitsRequested)
def _(e: gateway.LimitsRequested) -> str:
    memory = "no bound of memory" if e.memory_limit_bytes is None else f"at most {bytes_of(e.memory_limit_bytes)}"
    share = (
        "no bound of its share" if e.compute_share_ratio is None else f"a share of at most {e.compute_share_ratio:g}"
    )
    return f"{e.requested_by or 'an operator'} gives it {memory} and {share} of each GPU"


@_on(gateway.JobCodeChanged)
def _(e: gateway.JobCodeChanged) -> str:
    return f"{e.requested_by or 'a user'} adds files: it starts with upload {e.code_id}"


@_on(gateway.ArrayArrived)
def _(e: gateway.ArrayArrived) -> str:
    jobs, limit = counted(len(e.indices), "job"), "" if e.at_once is None else f", at most {e.at_once} at once"
    return f"{e.submitted_by or 'a user'} submits the array {e.spec.name!r} for tenant {e.spec.tenant}: {jobs}{limit}"


@_on(gateway.DagArrived)
def _(e: gateway.DagArrived) -> str:
    return f"{e.submitted_by or 'a user'} submits the DAG {e.name!r}: {counted(len(e.jobs), 'job')}"


@_on(gateway.GroupChangeRequested)
def _(e: gateway.GroupChangeRequested) -> str:
    asked = f"priority {e.priority}" if e.change is GroupChange.PRIORITY else e.change.value
    return f"{e.requested_by or 'a user'} asks for all of its jobs: {asked}{f' ({e.note})' if e.note else ''}"


@_on(gateway.JobSessionOpened)
def _(e: gateway.JobSessionOpened) -> str:
    if e.kind == "forward":
        return f"{e.opened_by or 'a user'} connects to port {e.port} of its node {e.node_id}"
    ran = f": {shlex.join(e.command)}" if e.command else ""
    where = f"rank {e.rank} on {e.node_id}"
    return f"{e.opened_by or 'a user'} opens {'a shell' if e.kind == 'shell' else 'a command'} in {where}{ran}"


@_on(gateway.JobSessionClosed)
def _(e: gateway.JobSessionClosed) -> str:
    ended = f"exit code {e.exit_code}" if e.exit_code is not None else f"signal {e.signal}" if e.signal else ""
    told = ", ".join(part for part in (ended, e.note) if part)
    return f"session {e.session_id} is over{f' ({told})' if told else ''}"


@_on(gateway.SweepArrived)
def _(e: gateway.SweepArrived) -> str:
    spec, best = e.spec, "highest" if e.spec.objective.maximize else "lowest"
    trials = counted(spec.trials, "trial")
    return f"{e.submitted_by or 'a user'} looks for the {best} {spec.objective.metric} with {trials}"


@_on(gateway.SweepCancelRequested)
def _(e: gateway.SweepCancelRequested) -> str:
    return f"{e.requested_by or 'a user'} wants the sweep cancelled{f' ({e.note})' if e.note else ''}"


@_on(gateway.TenantConfigured)
def _(e: gateway.TenantConfigured) -> str:
    limit = "no limit" if e.gpu_limit is None else f"a limit of {gpus(e.gpu_limit)}"
    said = {"a stall": e.on_stall, "a divergence": e.on_divergence, "idle GPUs": e.on_idle}
    responses = "".join(f"; on {alarm}: {word}" for alarm, word in said.items() if word)
    return f"{e.requested_by or 'an operator'} gives tenant {e.tenant} {limit}{_shares(e)}{responses}"


def _shares(e: gateway.TenantConfigured) -> str:
    """What is said of its virtual cluster."""
    of_types = {"guaranteed": e.guarantees, "at most": e.limits, "at most per user": e.per_user}
    said = [f"{what} {gpus(n)} of {t}" for what, found in of_types.items() for t, n in found.items()]
    said += [f"below {e.parent}"] if e.parent else []
    said += [word for word, stands in (("lends nothing", not e.lend), ("borrows nothing", not e.borrow)) if stands]
    return "".join(f", {word}" for word in said)


@_on(gateway.PolicyChanged)
def _(e: gateway.PolicyChanged) -> str:
    return f"{e.requested_by or 'an operator'} switches the policy to {e.policy}"


@_on(gateway.SettingChanged)
def _(e: gateway.SettingChanged) -> str:
    return f"{e.requested_by or 'an operator'} sets {e.name} of {e.service} to {e.value}"


@_on(gateway.DeadLetterRetried)
def _(e: gateway.DeadLetterRetried) -> str:
    return f"{e.requested_by or 'an operator'} gives {e.service} the record {e.record} once more"


@_on(gateway.InputReleaseRequested)
def _(e: gateway.InputReleaseRequested) -> str:
    return f"{e.requested_by} says that input {e.input} is well again"


@_on(gateway.NodeDrainRequested)
def _(e: gateway.NodeDrainRequested) -> str:
    return f"{e.requested_by or 'an operator'} drains node {e.node_id}: {e.note}"


@_on(gateway.NodeUndrainRequested)
def _(e: gateway.NodeUndrainRequested) -> str:
    return f"{e.requested_by or 'an operator'} lets node {e.node_id} work again"


@_on(admission.JobAdmitted)
def _(e: admission.JobAdmitted) -> str:
    return f"admitted: {e.reason.message}"


@_on(admission.JobHeldBack)
def _(e: admission.JobHeldBack) -> str:
    return f"must wait ({e.reason.code}): {e.reason.message}"


@_on(admission.JobRejected)
def _(e: admission.JobRejected) -> str:
    return f"rejected: {e.reason.message}"


@_on(admission.TrialOrdered)
def _(e: admission.TrialOrdered) -> str:
    return f"a trial comes first: {e.reason.message}"


@_on(admission.TrialPassed)
def _(e: admission.TrialPassed) -> str:
    after = "goes on from its checkpoint" if e.checkpoint else "starts afresh"
    return f"trial passed: {e.reason.message}; the gang {after}"


@_on(admission.TrialFailed)
def _(e: admission.TrialFailed) -> str:
    did = counted(e.steps, "mini-batch", "mini-batches")
    return f"failed in its trial ({e.failure}) after {did} and {e.gpu_s:.0f} GPU seconds; its gang never started"


@_on(admission.TrialSkipped)
def _(e: admission.TrialSkipped) -> str:
    return f"runs without a trial: {e.reason.message}"


@_on(gateway.ThroughputsProvided)
def _(e: gateway.ThroughputsProvided) -> str:
    configurations, pairs = counted(len(e.isolated), "configuration"), counted(len(e.colocated), "pair")
    return f"{e.provided_by} tells the rates of {configurations} and {pairs}"


@_on(quota.QuotaGranted)
def _(e: quota.QuotaGranted) -> str:
    return f"attempt {e.attempt} may compete for GPUs: {e.reason.message}"


@_on(quota.QuotaDeferred)
def _(e: quota.QuotaDeferred) -> str:
    return f"attempt {e.attempt} must wait ({e.reason.code}): {e.reason.message}"


@_on(quota.QuotaReclaimed)
def _(e: quota.QuotaReclaimed) -> str:
    return f"{', '.join(victim.job_id for victim in e.victims)} give back borrowed GPUs: {e.reason.message}"


@_on(quota.OpportunityGranted)
def _(e: quota.OpportunityGranted) -> str:
    return f"attempt {e.attempt} may run as a guest: {e.reason.message}"


@_on(quota.JobUpgraded)
def _(e: quota.JobUpgraded) -> str:
    return f"attempt {e.attempt} is guaranteed from now on: {e.reason.message}"


@_on(quota.UpgradeDeclined)
def _(e: quota.UpgradeDeclined) -> str:
    return f"attempt {e.attempt} stays a guest: {e.reason.message}"


@_on(placement.JobQueued)
def _(e: placement.JobQueued) -> str:
    if e.suspended:
        return (
            f"attempt {e.attempt} stands still where it is, and waits for quota ({e.reason.code}): {e.reason.message}"
        )
    return f"attempt {e.attempt} waits for GPUs ({e.reason.code}): {e.reason.message}"


@_on(placement.AllocationRequested)
def _(e: placement.AllocationRequested) -> str:
    return f"{e.policy} is to share the cluster anew: {e.reason.message}"


@_on(placement.AllocationComputed)
def _(e: placement.AllocationComputed) -> str:
    note = f" ({e.note})" if e.note else ""
    shares, jobs = counted(len(e.shares), "share"), counted(e.jobs, "job")
    return f"{e.policy} gives {shares} to {jobs}; its objective is {e.objective:.6g}{note}"


@_on(placement.ThroughputEstimated)
def _(e: placement.ThroughputEstimated) -> str:
    measured = counted(e.evidence, "measured co-location") if e.evidence else "its rates alone"
    return f"{e.configuration} is taken to share GPUs like {e.like}, by {measured} (confidence {e.confidence:.0%})"


@_on(placement.RoundStarted)
def _(e: placement.RoundStarted) -> str:
    return f"round {e.number} begins: {counted(len(e.renewed), 'lease')} renewed, {len(e.leases)} new"


@_on(placement.TimeSliceStarted)
def _(e: placement.TimeSliceStarted) -> str:
    changes = [("suspended", e.suspended), ("resumed", [s.job_id for s in e.resumed]), ("started", e.started)]
    said = "; ".join(f"{', '.join(jobs)} {what}" for what, jobs in changes if jobs)
    return f"turn {e.number} on {', '.join(e.nodes)}: {said or 'every job goes on'} ({e.reason.message})"


@_on(placement.JobPacked)
def _(e: placement.JobPacked) -> str:
    return f"shares its GPUs with {e.with_job}, on trial: {e.reason.message}"


@_on(placement.JobUnpacked)
def _(e: placement.JobUnpacked) -> str:
    return f"does not share its GPUs with {e.with_job} any more: {e.reason.message}"


@_on(introspection.GpuLoadChanged)
def _(e: introspection.GpuLoadChanged) -> str:
    return f"GPU {e.node_id}:{e.index} has been {e.utilisation_ratio:.0%} busy over {e.window_s:g} s"


@_on(introspection.InterferenceDetected)
def _(e: introspection.InterferenceDetected) -> str:
    return f"is slower beside {', '.join(e.beside)}: {e.reason.message}"


@_on(introspection.PackSucceeded)
def _(e: introspection.PackSucceeded) -> str:
    return f"its pack with {e.with_job} pays, {e.packed_ratio:.2f} against 1 by turns: {e.reason.message}"


@_on(introspection.PackFailed)
def _(e: introspection.PackFailed) -> str:
    ratio = "" if e.packed_ratio is None else f", {e.packed_ratio:.2f} against 1 by turns"
    return f"its pack with {e.with_job} does not pay{ratio}: {e.reason.message}"


@_on(placement.GangReserved)
def _(e: placement.GangReserved) -> str:
    return f"{', '.join(e.node_ids)} reserved for it ({gpus(e.gpus_held)} free there): {e.reason.message}"


@_on(placement.GangReleased)
def _(e: placement.GangReleased) -> str:
    return f"its reservation ends: {e.reason.message}"


@_on(placement.JobPlaced)
def _(e: placement.JobPlaced) -> str:
    passes = f"; {e.passed}, which comes before it, waits on" if e.passed else ""
    delays = f"; {e.delays} has fewer free GPUs to acquire by that" if e.delays else ""
    return f"attempt {e.attempt} gets {where(e.gang)}: {e.reason.message}{passes}{delays}"


@_on(placement.DestinationReserved)
def _(e: placement.DestinationReserved) -> str:
    return f"attempt {e.attempt} is made ready on {where(e.gang)}, to take over from attempt {e.from_attempt}"


@_on(placement.JobMoved)
def _(e: placement.JobMoved) -> str:
    return f"attempt {e.attempt} takes over on {where(e.gang)}: {e.reason.message}"


@_on(placement.JobResized)
def _(e: placement.JobResized) -> str:
    return f"has {gpus(e.gpus)} instead of {e.from_gpus} ({e.reason.code})"


@_on(placement.MoveAbandoned)
def _(e: placement.MoveAbandoned) -> str:
    return f"attempt {e.from_attempt} is not moved: {e.reason.message}"


@_on(placement.UpgradeOffered)
def _(e: placement.UpgradeOffered) -> str:
    return f"attempt {e.attempt} could be guaranteed where it is: {e.reason.message}"


@_on(placement.UpgradeWithdrawn)
def _(e: placement.UpgradeWithdrawn) -> str:
    return f"attempt {e.attempt} cannot be guaranteed where it is any more: {e.reason.message}"


@_on(placement.GuestExpelled)
def _(e: placement.GuestExpelled) -> str:
    return f"attempt {e.attempt} leaves the GPUs of {e.owner_job}, which it slows down: {e.reason.message}"


@_on(placement.SetClass)
def _(e: placement.SetClass) -> str:
    return f"order to {e.node_id}: attempt {e.attempt} is {'an owner' if e.role == 'owner' else 'a guest'}"


@_on(placement.SetMemoryLimit)
def _(e: placement.SetMemoryLimit) -> str:
    bound = "no bound" if e.limit_bytes is None else f"at most {bytes_of(e.limit_bytes)}"
    return f"order to {e.node_id}: attempt {e.attempt} has {bound} of each GPU's memory"


@_on(placement.SetComputeShare)
def _(e: placement.SetComputeShare) -> str:
    bound = "no bound" if e.share_ratio is None else f"at most {e.share_ratio:.0%}"
    return f"order to {e.node_id}: attempt {e.attempt} has {bound} of each GPU's time"


@_on(placement.NodeCordoned)
def _(e: placement.NodeCordoned) -> str:
    return f"nothing new is placed on {_named(e.node_id, e.gpu_indices)}: {e.reason.message}"


@_on(placement.NodeReturned)
def _(e: placement.NodeReturned) -> str:
    return f"{_named(e.node_id, e.gpu_indices)} may be used again: {e.reason.message}"


@_on(placement.CheckGpus)
def _(e: placement.CheckGpus) -> str:
    return f"{_named(e.node_id, e.gpu_indices)} are to be tested"


@_on(placement.JobPreempted)
def _(e: placement.JobPreempted) -> str:
    return f"attempt {e.attempt} is taken off its GPUs: {e.reason.message}"


@_on(placement.AttemptFailed)
def _(e: placement.AttemptFailed) -> str:
    return f"attempt {e.attempt} failed: {e.reason.message}"


@_on(placement.JobSucceeded)
def _(e: placement.JobSucceeded) -> str:
    return f"succeeded with attempt {e.attempt}"


@_on(placement.JobCancelled)
def _(e: placement.JobCancelled) -> str:
    return f"cancelled: {e.reason.message}"


@_on(placement.LaunchTask)
def _(e: placement.LaunchTask) -> str:
    gpus_there = f"{plural(len(e.gpu_indices), 'GPU')} {_ranges(e.gpu_indices)}"
    return f"order to {e.node_id}: launch attempt {e.attempt} on {gpus_there}"


@_on(placement.StopTask)
def _(e: placement.StopTask) -> str:
    return f"order to {e.node_id}: stop attempt {e.attempt} within {e.grace_s:g} s ({e.reason.message})"


@_on(placement.SuspendTask)
def _(e: placement.SuspendTask) -> str:
    return f"order to {e.node_id}: suspend attempt {e.attempt}"


@_on(placement.ResumeTask)
def _(e: placement.ResumeTask) -> str:
    return f"order to {e.node_id}: resume attempt {e.attempt}"


@_on(placement.RestoreTask)
def _(e: placement.RestoreTask) -> str:
    sources = ", ".join(source.node_id for source in e.sources)
    return f"order to {e.node_id}: attempt {e.attempt} fetches the state of attempt {e.from_attempt} from {sources}"


@_on(agent.NodeJoined)
def _(e: agent.NodeJoined) -> str:
    types = sorted({gpu.gpu_type for gpu in e.gpus})
    running = f", {counted(len(e.tasks), 'task')} found running" if e.tasks else ""
    cpus = f", on {counted(len({*e.gpu_cpus}), 'CPU')} of their own" if e.gpu_cpus else ""
    pool = f", set apart for the pool {name!r}" if (name := pool_of(e.features)) else ""
    return f"node {e.node_id} joins with {gpus(len(e.gpus))} ({', '.join(types)}){cpus}{pool}{running}"


@_on(agent.NodeLeaving)
def _(e: agent.NodeLeaving) -> str:
    return f"node {e.node_id} is about to leave{f': {e.note}' if e.note else ''}"


@_on(agent.NodeLeft)
def _(e: agent.NodeLeft) -> str:
    return f"node {e.node_id} leaves{f': {e.note}' if e.note else ''}"


@_on(agent.NodeTested)
def _(e: agent.NodeTested) -> str:
    if e.failed:
        return f"{_named(e.node_id, e.failed)} failed a test: {e.note}"
    return f"{_named(e.node_id, e.gpu_indices)} passed a test"


@_on(agent.GpuUnhealthy)
def _(e: agent.GpuUnhealthy) -> str:
    return f"GPU {e.node_id}:{e.index} is unhealthy: {e.note}"


@_on(agent.GpuRecovered)
def _(e: agent.GpuRecovered) -> str:
    return f"GPU {e.node_id}:{e.index} is well again"


@_on(agent.JobStarted)
def _(e: agent.JobStarted) -> str:
    return f"attempt {e.attempt} runs on {e.node_id} (process group {e.pid})"


@_on(agent.JobSuspended)
def _(e: agent.JobSuspended) -> str:
    parked = f", {e.parked_bytes / 1e6:.1f} MB brought to the host" if e.parked_bytes else ""
    parked = f", with its memory on the GPU: {e.note}" if e.note else parked
    return f"attempt {e.attempt} is suspended on {e.node_id} after {e.delay_s:.3f} s{parked}"


@_on(agent.MemoryLimitChanged)
def _(e: agent.MemoryLimitChanged) -> str:
    limit = "without limit" if e.to_bytes is None else f"limited to {bytes_of(e.to_bytes)}"
    held = f"{bytes_of(e.device_bytes)} there, {bytes_of(e.host_bytes)} on the host"
    return f"its memory on {e.node_id}:{e.index} is {limit} ({held}): {e.reason.message}"


@_on(agent.ComputeShareChanged)
def _(e: agent.ComputeShareChanged) -> str:
    share = f"{e.to_ratio:.0%} instead of {e.from_ratio:.0%}"
    return f"its share of {e.node_id}:{e.index} is {share}: {e.reason.message}"


@_on(agent.MemoryBurst)
def _(e: agent.MemoryBurst) -> str:
    after = counted(e.minibatches, "mini-batch", "mini-batches")
    return f"needs {bytes_of(e.host_bytes)} more than {e.node_id}:{e.index} had for it, and has them after {after}"


@_on(agent.MemoryTraded)
def _(e: agent.MemoryTraded) -> str:
    kept = "keeps" if e.kept else "gives back"
    return f"{kept} {bytes_of(e.moved_bytes)} of {e.from_job} on {e.node_id}:{e.index}: {e.reason.message}"


@_on(agent.GuestMisbehaved)
def _(e: agent.GuestMisbehaved) -> str:
    return f"attempt {e.attempt} on {e.node_id}:{e.index} is stopped from outside: {e.reason.message}"


@_on(agent.JobMovable)
def _(e: agent.JobMovable) -> str:
    return f"attempt {e.attempt} on {e.node_id} can hand over its state"


@_on(agent.NodeErrorsLogged)
def _(e: agent.NodeErrorsLogged) -> str:
    return f"the agent of {e.node_id} has logged {counted(e.errors, 'error')} since its start, the last one: {e.last}"


@_on(agent.JobRanksApart)
def _(e: agent.JobRanksApart) -> str:
    return f"attempt {e.attempt} on {e.node_id}: {e.reason.message}"


@_on(agent.JobSettingUp)
def _(e: agent.JobSettingUp) -> str:
    return f"attempt {e.attempt} on {e.node_id} is {e.reason.message}"


@_on(agent.JobReady)
def _(e: agent.JobReady) -> str:
    return f"attempt {e.attempt} waits on {e.node_id} for the state that it is to take over"


@_on(agent.JobRestored)
def _(e: agent.JobRestored) -> str:
    megabytes, took_s = e.state_bytes / 1e6, e.fetch_s + e.load_s
    return f"attempt {e.attempt} has its state on {e.node_id}: {megabytes:.1f} MB in {took_s:.3f} s"


@_on(agent.JobResumed)
def _(e: agent.JobResumed) -> str:
    gpus_now = f":{','.join(map(str, e.gpu_indices))}" if e.gpu_indices else ""
    return f"attempt {e.attempt} goes on, on {e.node_id}{gpus_now}"


@_on(agent.MetricsReported)
def _(e: agent.MetricsReported) -> str:
    return f"at step {e.step:g}: " + ", ".join(f"{name} {value:.4g}" for name, value in e.values.items())


@_on(agent.DataChecked)
def _(e: agent.DataChecked) -> str:
    looked_at = f"data of {counted(e.files, 'file')}, {counted(e.rows, 'row')}"
    if not e.violations:
        return f"{looked_at} is as its schema says"
    first = e.violations[0]
    row = f", row {first.row}" if first.row is not None else ""
    column = f", column {first.column}" if first.column else ""
    place = f"{first.file}{row}{column}: {first.value}; expected {first.expected}"
    return f"{looked_at} breaks its schema {counted(len(e.violations), 'time')}, first in {place}"


@_on(agent.JobExited)
def _(e: agent.JobExited) -> str:
    steps = f", {_minibatches(e.minibatches_total)}" if e.minibatches_total else ""
    how = _how(e.exit_code, e.signal)
    return f"attempt {e.attempt} ended on {e.node_id} after {e.ran_s:.1f} s{steps}: {e.outcome}, {how}"


@_on(introspection.JobProfiled)
def _(e: introspection.JobProfiled) -> str:
    loss = f", loss {e.loss:g}" if e.loss is not None else f", loss {e.loss_nonfinite}" if e.loss_nonfinite else ""
    return f"{_minibatches(e.minibatches_total)} done, {e.rate_per_s:.2f}/s{loss}"


@_on(introspection.JobStalled)
def _(e: introspection.JobStalled) -> str:
    seen = f"; stacks of {counted(len(e.stacks), 'process', 'processes')} are with it" if e.stacks else ""
    return f"attempt {e.attempt} has stalled: {e.reason.message}{seen}"


@_on(introspection.GpuIdle)
def _(e: introspection.GpuIdle) -> str:
    return f"attempt {e.attempt} leaves its GPUs idle: {e.reason.message}"


@_on(introspection.JobRecovered)
def _(e: introspection.JobRecovered) -> str:
    return f"attempt {e.attempt} is no longer {e.alarm}: {e.reason.message}"


@_on(introspection.LossDiverged)
def _(e: introspection.LossDiverged) -> str:
    return f"attempt {e.attempt} has diverged: {e.reason.message}"


@_on(introspection.JobConverged)
def _(e: introspection.JobConverged) -> str:
    return f"attempt {e.attempt} has converged: {e.reason.message}"


@_on(introspection.HostProfiled)
def _(e: introspection.HostProfiled) -> str:
    used = f"{e.memory_used_mean_bytes / 2**30:.1f} of {e.memory_bytes / 2**30:.1f} GiB"
    return f"the host of {e.node_id} uses {e.cpu_utilisation_ratio:.0%} of {e.cpus} CPUs, and {used} of memory"


@_on(introspection.NodeLost)
def _(e: introspection.NodeLost) -> str:
    return f"node {e.node_id} is lost: nothing heard for {e.silent_s:.0f} s"


@_on(migration.MigrationStarted)
def _(e: migration.MigrationStarted) -> str:
    if e.gpus is not None:
        return f"migration {e.migration_id} to {gpus(e.gpus)} on {', '.join(e.to_nodes)}: {e.reason.message}"
    return f"migration {e.migration_id} away from {', '.join(e.from_nodes)}: {e.reason.message}"


@_on(migration.MigrationCompleted)
def _(e: migration.MigrationCompleted) -> str:
    return f"migration {e.migration_id} completed: attempt {e.attempt} on {', '.join(e.to_nodes)}"


@_on(migration.MigrationAssessed)
def _(e: migration.MigrationAssessed) -> str:
    rates = f"{e.before_per_s:.2f}/s before, {e.after_per_s:.2f}/s after"
    return f"migration {e.migration_id} has brought {e.gain_ratio:+.1%}: {rates}"


@_on(migration.MigrationFailed)
def _(e: migration.MigrationFailed) -> str:
    return f"migration {e.migration_id} failed: {e.reason.message}"


@_on(migration.NodeDrained)
def _(e: migration.NodeDrained) -> str:
    return f"node {e.node_id} is empty, {counted(e.moved_jobs, 'job was', 'jobs were')} moved"


@_on(failure_analysis.RulesLoaded)
def _(e: failure_analysis.RulesLoaded) -> str:
    refused = f"; the operators' own are refused: {e.refused}" if e.refused else ""
    return f"lines of jobs are followed by {counted(e.rules, 'rule')} ({e.digest[:12]}) from here on{refused}"


@_on(failure_analysis.FailureObserved)
def _(e: failure_analysis.FailureObserved) -> str:
    read = f"all lines of attempt {e.attempt} were read" if e.complete else f"attempt {e.attempt} fails as it seems"
    if not e.line:
        return f"{read}; none of them decides"
    where = f" of rank {e.rank}" if e.rank is not None else ""
    return f"{read}; the line{where} that decides says {e.cause} ({e.failure}): {e.line}"


@_on(failure_analysis.FailureClassified)
def _(e: failure_analysis.FailureClassified) -> str:
    where = f" ({e.where})" if e.where else ""
    return f"attempt {e.attempt} failed of {e.failure} ({e.category}); decided by: {e.deciding_line}{where}"


@_on(failure_analysis.GpuSuspected)
def _(e: failure_analysis.GpuSuspected) -> str:
    return f"GPU {e.node_id}:{e.index} is suspected: {e.reason.message}"


@_on(failure_analysis.NodeSuspected)
def _(e: failure_analysis.NodeSuspected) -> str:
    return f"node {e.node_id} is suspected: {e.reason.message}"


@_on(failure_analysis.RepeatNoticed)
def _(e: failure_analysis.RepeatNoticed) -> str:
    return f"jobs of user {e.user} fail again and again: {e.reason.message}"


@_on(failure_analysis.InputQuarantined)
def _(e: failure_analysis.InputQuarantined) -> str:
    return f"jobs that name input {e.input} are held from here on: {e.reason.message}"


@_on(failure_analysis.InputReleased)
def _(e: failure_analysis.InputReleased) -> str:
    return f"jobs that name input {e.input} may run again: {e.reason.message}"


@_on(failure_analysis.RetryScheduled)
def _(e: failure_analysis.RetryScheduled) -> str:
    return f"attempt {e.attempt} will be made: {e.reason.message}"


@_on(failure_analysis.JobAbandoned)
def _(e: failure_analysis.JobAbandoned) -> str:
    return f"given up after attempt {e.attempt} ({_how(e.exit_code, e.signal)}): {e.reason.message}"


@_on(runtime.TimerFired)
def _(e: runtime.TimerFired) -> str:
    return f"the timer that {e.service} asked for fires"


@_on(runtime.ServiceStarted)
def _(e: runtime.ServiceStarted) -> str:
    return f"{e.service} {e.version} decides by rules {e.rules[:12]} from here on"


@_on(sweeps.TrialStarted)
def _(e: sweeps.TrialStarted) -> str:
    return f"trial {e.number} tries " + ", ".join(f"{name} {_short(value)}" for name, value in e.parameters.items())


@_on(sweeps.TrialPromoted)
def _(e: sweeps.TrialPromoted) -> str:
    return f"trial {e.number} goes before the others: {e.reason.message}"


@_on(sweeps.TrialDemoted)
def _(e: sweeps.TrialDemoted) -> str:
    return f"trial {e.number} no longer goes before the others: {e.reason.message}"


@_on(sweeps.TrialPruned)
def _(e: sweeps.TrialPruned) -> str:
    return f"trial {e.number} is given up: {e.reason.message}"


@_on(sweeps.TrialEnded)
def _(e: sweeps.TrialEnded) -> str:
    best = "" if e.value is None else f", at best {e.value:.4g}"
    return f"trial {e.number} is over: {e.outcome} after {counted(e.reports, 'report')}{best}"


@_on(sweeps.SweepEnded)
def _(e: sweeps.SweepEnded) -> str:
    best = "" if e.best_value is None else f"; the best was trial {e.best_trial} with {e.best_value:.4g}"
    return f"the sweep is over, {e.outcome.replace('_', ' ')}: {e.reason.message}{best}"


def _minibatches(count: int) -> str:
    return counted(count, "mini-batch", "mini-batches")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
