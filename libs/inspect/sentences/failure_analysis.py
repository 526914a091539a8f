"""Events of failure analysis, in sentences."""

from __future__ import annotations

from libs.contracts import failure_analysis
from libs.inspect.sentences.table import tells
from libs.inspect.sentences.words import how_it_ended
from libs.kernel.words import counted


@tells(failure_analysis.RulesLoaded)
def _(e: failure_analysis.RulesLoaded) -> str:
    refused = f"; the operators' own are refused: {e.refused}" if e.refused else ""
    return f"lines of jobs are followed by {counted(e.rules, 'rule')} ({e.digest[:12]}) from here on{refused}"


@tells(failure_analysis.FailureObserved)
def _(e: failure_analysis.FailureObserved) -> str:
    read = f"all lines of attempt {e.attempt} were read" if e.complete else f"attempt {e.attempt} fails as it seems"
    if not e.line:
        return f"{read}; none of them decides"
    where = f" of rank {e.rank}" if e.rank is not None else ""
    return f"{read}; the line{where} that decides says {e.cause} ({e.failure}): {e.line}"


@tells(failure_analysis.FailureClassified)
def _(e: failure_analysis.FailureClassified) -> str:
    where = f" ({e.where})" if e.where else ""
    return f"attempt {e.attempt} failed of {e.failure} ({e.category}); decided by: {e.deciding_line}{where}"


@tells(failure_analysis.GpuSuspected)
def _(e: failure_analysis.GpuSuspected) -> str:
    return f"GPU {e.node_id}:{e.index} is suspected: {e.reason.message}"


@tells(failure_analysis.NodeSuspected)
def _(e: failure_analysis.NodeSuspected) -> str:
    return f"node {e.node_id} is suspected: {e.reason.message}"


@tells(failure_analysis.RepeatNoticed)
def _(e: failure_analysis.RepeatNoticed) -> str:
    return f"jobs of user {e.user} fail again and again: {e.reason.message}"


@tells(failure_analysis.InputQuarantined)
def _(e: failure_analysis.InputQuarantined) -> str:
    return f"jobs that name input {e.input} are held from here on: {e.reason.message}"


@tells(failure_analysis.InputReleased)
def _(e: failure_analysis.InputReleased) -> str:
    return f"jobs that name input {e.input} may run again: {e.reason.message}"


@tells(failure_analysis.RetryScheduled)
def _(e: failure_analysis.RetryScheduled) -> str:
    return f"attempt {e.attempt} will be made: {e.reason.message}"


@tells(failure_analysis.JobAbandoned)
def _(e: failure_analysis.JobAbandoned) -> str:
    return f"given up after attempt {e.attempt} ({how_it_ended(e.exit_code, e.signal)}): {e.reason.message}"
