"""Events of agents, in sentences."""

from __future__ import annotations

from libs.contracts import agent
from libs.contracts.features import pool_of
from libs.inspect.sentences.table import tells
from libs.inspect.sentences.words import gpus, how_it_ended, minibatches, named
from libs.kernel.words import bytes_of, counted


@tells(agent.NodeJoined)
def _(e: agent.NodeJoined) -> str:
    types = sorted({gpu.gpu_type for gpu in e.gpus})
    running = f", {counted(len(e.tasks), 'task')} found running" if e.tasks else ""
    cpus = f", on {counted(len({*e.gpu_cpus}), 'CPU')} of their own" if e.gpu_cpus else ""
    pool = f", set apart for the pool {name!r}" if (name := pool_of(e.features)) else ""
    return f"node {e.node_id} joins with {gpus(len(e.gpus))} ({', '.join(types)}){cpus}{pool}{running}"


@tells(agent.NodeLeaving)
def _(e: agent.NodeLeaving) -> str:
    return f"node {e.node_id} is about to leave{f': {e.note}' if e.note else ''}"


@tells(agent.NodeLeft)
def _(e: agent.NodeLeft) -> str:
    return f"node {e.node_id} leaves{f': {e.note}' if e.note else ''}"


@tells(agent.NodeTested)
def _(e: agent.NodeTested) -> str:
    if e.failed:
        return f"{named(e.node_id, e.failed)} failed a test: {e.note}"
    return f"{named(e.node_id, e.gpu_indices)} passed a test"


@tells(agent.GpuUnhealthy)
def _(e: agent.GpuUnhealthy) -> str:
    return f"GPU {e.node_id}:{e.index} is unhealthy: {e.note}"


@tells(agent.GpuRecovered)
def _(e: agent.GpuRecovered) -> str:
    return f"GPU {e.node_id}:{e.index} is well again"


@tells(agent.JobStarted)
def _(e: agent.JobStarted) -> str:
    return f"attempt {e.attempt} runs on {e.node_id} (process group {e.pid})"


@tells(agent.JobSuspended)
def _(e: agent.JobSuspended) -> str:
    parked = f", {e.parked_bytes / 1e6:.1f} MB brought to the host" if e.parked_bytes else ""
    parked = f", with its memory on the GPU: {e.note}" if e.note else parked
    return f"attempt {e.attempt} is suspended on {e.node_id} after {e.delay_s:.3f} s{parked}"


@tells(agent.MemoryLimitChanged)
def _(e: agent.MemoryLimitChanged) -> str:
    limit = "without limit" if e.to_bytes is None else f"limited to {bytes_of(e.to_bytes)}"
    held = f"{bytes_of(e.device_bytes)} there, {bytes_of(e.host_bytes)} on the host"
    return f"its memory on {e.node_id}:{e.index} is {limit} ({held}): {e.reason.message}"


@tells(agent.ComputeShareChanged)
def _(e: agent.ComputeShareChanged) -> str:
    share = f"{e.to_ratio:.0%} instead of {e.from_ratio:.0%}"
    return f"its share of {e.node_id}:{e.index} is {share}: {e.reason.message}"


@tells(agent.MemoryBurst)
def _(e: agent.MemoryBurst) -> str:
    after = counted(e.minibatches, "mini-batch", "mini-batches")
    return f"needs {bytes_of(e.host_bytes)} more than {e.node_id}:{e.index} had for it, and has them after {after}"


@tells(agent.MemoryTraded)
def _(e: agent.MemoryTraded) -> str:
    kept = "keeps" if e.kept else "gives back"
    return f"{kept} {bytes_of(e.moved_bytes)} of {e.from_job} on {e.node_id}:{e.index}: {e.reason.message}"


@tells(agent.GuestMisbehaved)
def _(e: agent.GuestMisbehaved) -> str:
    return f"attempt {e.attempt} on {e.node_id}:{e.index} is stopped from outside: {e.reason.message}"


@tells(agent.JobMovable)
def _(e: agent.JobMovable) -> str:
    return f"attempt {e.attempt} on {e.node_id} can hand over its state"


@tells(agent.NodeErrorsLogged)
def _(e: agent.NodeErrorsLogged) -> str:
    return f"the agent of {e.node_id} has logged {counted(e.errors, 'error')} since its start, the last one: {e.last}"


@tells(agent.JobRanksApart)
def _(e: agent.JobRanksApart) -> str:
    return f"attempt {e.attempt} on {e.node_id}: {e.reason.message}"


@tells(agent.JobSettingUp)
def _(e: agent.JobSettingUp) -> str:
    return f"attempt {e.attempt} on {e.node_id} is {e.reason.message}"


@tells(agent.JobReady)
def _(e: agent.JobReady) -> str:
    return f"attempt {e.attempt} waits on {e.node_id} for the state that it is to take over"


@tells(agent.JobRestored)
def _(e: agent.JobRestored) -> str:
    megabytes, took_s = e.state_bytes / 1e6, e.fetch_s + e.load_s
    return f"attempt {e.attempt} has its state on {e.node_id}: {megabytes:.1f} MB in {took_s:.3f} s"


@tells(agent.JobResumed)
def _(e: agent.JobResumed) -> str:
    gpus_now = f":{','.join(map(str, e.gpu_indices))}" if e.gpu_indices else ""
    return f"attempt {e.attempt} goes on, on {e.node_id}{gpus_now}"


@tells(agent.MetricsReported)
def _(e: agent.MetricsReported) -> str:
    return f"at step {e.step:g}: " + ", ".join(f"{name} {value:.4g}" for name, value in e.values.items())


@tells(agent.DataChecked)
def _(e: agent.DataChecked) -> str:
    looked_at = f"data of {counted(e.files, 'file')}, {counted(e.rows, 'row')}"
    if not e.violations:
        return f"{looked_at} is as its schema says"
    first = e.violations[0]
    row = f", row {first.row}" if first.row is not None else ""
    column = f", column {first.column}" if first.column else ""
    place = f"{first.file}{row}{column}: {first.value}; expected {first.expected}"
    return f"{looked_at} breaks its schema {counted(len(e.violations), 'time')}, first in {place}"


@tells(agent.JobExited)
def _(e: agent.JobExited) -> str:
    steps = f", {minibatches(e.minibatches_total)}" if e.minibatches_total else ""
    how = how_it_ended(e.exit_code, e.signal)
    return f"attempt {e.attempt} ended on {e.node_id} after {e.ran_s:.1f} s{steps}: {e.outcome}, {how}"
