"""Events of introspection, in sentences."""

from __future__ import annotations

from libs.contracts import introspection
from libs.inspect.sentences.table import tells
from libs.inspect.sentences.words import minibatches
from libs.kernel.words import counted, off_by


@tells(introspection.GpuLoadChanged)
def _(e: introspection.GpuLoadChanged) -> str:
    return f"GPU {e.node_id}:{e.index} has been {e.utilisation_ratio:.0%} busy over {e.window_s:g} s"


@tells(introspection.InterferenceDetected)
def _(e: introspection.InterferenceDetected) -> str:
    return f"is slower beside {', '.join(e.beside)}: {e.reason.message}"


@tells(introspection.PackSucceeded)
def _(e: introspection.PackSucceeded) -> str:
    return f"its pack with {e.with_job} pays, {e.packed_ratio:.2f} against 1 by turns: {e.reason.message}"


@tells(introspection.PackFailed)
def _(e: introspection.PackFailed) -> str:
    ratio = "" if e.packed_ratio is None else f", {e.packed_ratio:.2f} against 1 by turns"
    return f"its pack with {e.with_job} does not pay{ratio}: {e.reason.message}"


@tells(introspection.JobProfiled)
def _(e: introspection.JobProfiled) -> str:
    loss = f", loss {e.loss:g}" if e.loss is not None else f", loss {e.loss_nonfinite}" if e.loss_nonfinite else ""
    return f"{minibatches(e.minibatches_total)} done, {e.rate_per_s:.2f}/s{loss}"


@tells(introspection.JobStalled)
def _(e: introspection.JobStalled) -> str:
    seen = f"; stacks of {counted(len(e.stacks), 'process', 'processes')} are with it" if e.stacks else ""
    return f"attempt {e.attempt} has stalled: {e.reason.message}{seen}"


@tells(introspection.JobStuck)
def _(e: introspection.JobStuck) -> str:
    return f"is stuck, owed by {' and '.join(e.owed_by)}: {e.reason.message}"


@tells(introspection.GpuIdle)
def _(e: introspection.GpuIdle) -> str:
    return f"attempt {e.attempt} leaves its GPUs idle: {e.reason.message}"


@tells(introspection.JobRecovered)
def _(e: introspection.JobRecovered) -> str:
    return f"attempt {e.attempt} is no longer {e.alarm}: {e.reason.message}"


@tells(introspection.LossDiverged)
def _(e: introspection.LossDiverged) -> str:
    return f"attempt {e.attempt} has diverged: {e.reason.message}"


@tells(introspection.JobConverged)
def _(e: introspection.JobConverged) -> str:
    return f"attempt {e.attempt} has converged: {e.reason.message}"


@tells(introspection.HostProfiled)
def _(e: introspection.HostProfiled) -> str:
    used = f"{e.memory_used_mean_bytes / 2**30:.1f} of {e.memory_bytes / 2**30:.1f} GiB"
    return f"the host of {e.node_id} uses {e.cpu_utilisation_ratio:.0%} of {e.cpus} CPUs, and {used} of memory"


@tells(introspection.ClockSkewed)
def _(e: introspection.ClockSkewed) -> str:
    if not e.skew_s:
        return f"the clock of {e.node_id} is right again"
    return f"the clock of {e.node_id} is {off_by(e.skew_s)}"


@tells(introspection.NodeLost)
def _(e: introspection.NodeLost) -> str:
    return f"node {e.node_id} is lost: nothing heard for {e.silent_s:.0f} s"
