"""Events of the gateway: what users and operators ask for, in sentences."""

from __future__ import annotations

import shlex

from libs.contracts import gateway
from libs.contracts.groups import GroupChange
from libs.inspect.sentences.table import tells
from libs.inspect.sentences.words import gpus
from libs.kernel.words import bytes_of, counted


@tells(gateway.JobArrived)
def _(e: gateway.JobArrived) -> str:
    name, spec = e.spec.name, e.spec
    return f"{e.submitted_by or 'a user'} submits {name!r} for tenant {spec.tenant}: {gpus(spec.gpus.count)}"


@tells(gateway.JobCancelRequested)
def _(e: gateway.JobCancelRequested) -> str:
    return f"{e.requested_by or 'a user'} wants it cancelled{f' ({e.note})' if e.note else ''}"


@tells(gateway.JobPauseRequested)
def _(e: gateway.JobPauseRequested) -> str:
    return f"{e.requested_by or 'a user'} pauses it"


@tells(gateway.JobResumeRequested)
def _(e: gateway.JobResumeRequested) -> str:
    return f"{e.requested_by or 'a user'} lets it go on"


@tells(gateway.JobPriorityChanged)
def _(e: gateway.JobPriorityChanged) -> str:
    return f"{e.requested_by or 'a user'} sets its priority to {e.priority}"


@tells(gateway.JobMaxGpusChanged)
def _(e: gateway.JobMaxGpusChanged) -> str:
    return f"{e.requested_by or 'a user'} lets it have at most {counted(e.max_gpus, 'GPU')}"


@tells(gateway.LimitsRequested)
def _(e: gateway.LimitsRequested) -> str:
    memory = "no bound of memory" if e.memory_limit_bytes is None else f"at most {bytes_of(e.memory_limit_bytes)}"
    share = (
        "no bound of its share" if e.compute_share_ratio is None else f"a share of at most {e.compute_share_ratio:g}"
    )
    return f"{e.requested_by or 'an operator'} gives it {memory} and {share} of each GPU"


@tells(gateway.JobCodeChanged)
def _(e: gateway.JobCodeChanged) -> str:
    return f"{e.requested_by or 'a user'} adds files: it starts with upload {e.code_id}"


@tells(gateway.ArrayArrived)
def _(e: gateway.ArrayArrived) -> str:
    jobs, limit = counted(len(e.indices), "job"), "" if e.at_once is None else f", at most {e.at_once} at once"
    return f"{e.submitted_by or 'a user'} submits the array {e.spec.name!r} for tenant {e.spec.tenant}: {jobs}{limit}"


@tells(gateway.DagArrived)
def _(e: gateway.DagArrived) -> str:
    return f"{e.submitted_by or 'a user'} submits the DAG {e.name!r}: {counted(len(e.jobs), 'job')}"


@tells(gateway.GroupChangeRequested)
def _(e: gateway.GroupChangeRequested) -> str:
    asked = f"priority {e.priority}" if e.change is GroupChange.PRIORITY else e.change.value
    return f"{e.requested_by or 'a user'} asks for all of its jobs: {asked}{f' ({e.note})' if e.note else ''}"


@tells(gateway.JobSessionOpened)
def _(e: gateway.JobSessionOpened) -> str:
    if e.kind == "forward":
        return f"{e.opened_by or 'a user'} connects to port {e.port} of its node {e.node_id}"
    ran = f": {shlex.join(e.command)}" if e.command else ""
    where = f"rank {e.rank} on {e.node_id}"
    return f"{e.opened_by or 'a user'} opens {'a shell' if e.kind == 'shell' else 'a command'} in {where}{ran}"


@tells(gateway.JobSessionClosed)
def _(e: gateway.JobSessionClosed) -> str:
    ended = f"exit code {e.exit_code}" if e.exit_code is not None else f"signal {e.signal}" if e.signal else ""
    told = ", ".join(part for part in (ended, e.note) if part)
    return f"session {e.session_id} is over{f' ({told})' if told else ''}"


@tells(gateway.SweepArrived)
def _(e: gateway.SweepArrived) -> str:
    spec, best = e.spec, "highest" if e.spec.objective.maximize else "lowest"
    trials = counted(spec.trials, "trial")
    return f"{e.submitted_by or 'a user'} looks for the {best} {spec.objective.metric} with {trials}"


@tells(gateway.SweepCancelRequested)
def _(e: gateway.SweepCancelRequested) -> str:
    return f"{e.requested_by or 'a user'} wants the sweep cancelled{f' ({e.note})' if e.note else ''}"


@tells(gateway.TenantConfigured)
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


@tells(gateway.PolicyChanged)
def _(e: gateway.PolicyChanged) -> str:
    return f"{e.requested_by or 'an operator'} switches the policy to {e.policy}"


@tells(gateway.SettingChanged)
def _(e: gateway.SettingChanged) -> str:
    return f"{e.requested_by or 'an operator'} sets {e.name} of {e.service} to {e.value}"


@tells(gateway.DeadLetterRetried)
def _(e: gateway.DeadLetterRetried) -> str:
    return f"{e.requested_by or 'an operator'} gives {e.service} the record {e.record} once more"


@tells(gateway.InputReleaseRequested)
def _(e: gateway.InputReleaseRequested) -> str:
    return f"{e.requested_by} says that input {e.input} is well again"


@tells(gateway.NodeDrainRequested)
def _(e: gateway.NodeDrainRequested) -> str:
    return f"{e.requested_by or 'an operator'} drains node {e.node_id}: {e.note}"


@tells(gateway.NodeUndrainRequested)
def _(e: gateway.NodeUndrainRequested) -> str:
    return f"{e.requested_by or 'an operator'} lets node {e.node_id} work again"


@tells(gateway.ThroughputsProvided)
def _(e: gateway.ThroughputsProvided) -> str:
    configurations, pairs = counted(len(e.isolated), "configuration"), counted(len(e.colocated), "pair")
    return f"{e.provided_by} tells the rates of {configurations} and {pairs}"
