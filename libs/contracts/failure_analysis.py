"""Why attempts failed, and what follows."""

from __future__ import annotations

from libs.contracts.base import Event, event
from libs.contracts.reasons import Reason

OWNER = "failure_analysis"


@event("failure.rules_loaded.v1", owner=OWNER, subject="digest")
class RulesLoaded(Event, frozen=True, kw_only=True):
    """Lines of jobs are looked at by these rules from now on, while the jobs run; said at a change of the rules.

    Until the first one of a log, attempts are judged by the end of stderr alone.
    """

    digest: str
    """Of the rules, 32 hex digits (`libs/failures/ruleset.py`)."""
    rules: int
    consequences: dict[str, str] = {}
    """{cause: consequence}, where the operators' table differs from the package's (`libs/failures/consequences.py`)."""
    refused: str = ""
    """What is wrong with the operators' own rules, with file and line: the rules before them stay in force. Empty:
    nothing."""


@event("failure.observed.v1", owner=OWNER, subject="job_id")
class FailureObserved(Event, frozen=True, kw_only=True):
    """A line of an attempt, by which it fails as far as its lines tell until now. At most a few per attempt, and one
    when all of its lines have been read (`complete`).

    Lines are short-lived: no replay can look at them again, so to the audit this is an input.
    """

    job_id: str
    attempt: int
    rule: str
    """Its id; empty where no line decides."""
    digest: str
    """Of the rules in force, as in RulesLoaded."""
    failure: str
    """The reason, as in FailureClassified; so are `category`, `cause` and `confidence`."""
    category: str
    cause: str
    retry_can_help: bool
    confidence: float
    level: int
    """From root cause (0) to consequence (99), as in `libs/failures/README.md`."""
    line: str
    """As it was printed, at most 500 characters."""
    rank: int | None = None
    """Global rank that printed it, where that is known."""
    node_id: str = ""
    """Of that rank; empty where it is not known."""
    stream: str = ""
    others: list[int] = []
    """Ranks with lines that rules know, too, but behind this one, ascending."""
    evidence: list[str] = []
    """Other lines that rules know, at most 20, in the order in which they came; cut as `line` is."""
    complete: bool = False
    """The attempt has failed, and all of its lines have been read: this is the last word about them."""


@event("failure.classified.v1", owner=OWNER, subject="job_id")
class FailureClassified(Event, frozen=True, kw_only=True):
    """The most likely cause of a failed attempt; vocabulary of the Philly study's Table 6, in snake_case,
    `time_limit_exceeded` and `host_memory_exceeded`."""

    job_id: str
    attempt: int
    failure: str
    """Reason, e.g. `cpu_out_of_memory`, `incorrect_inputs`, `traceback_from_crash`, `no_signature`."""
    category: str
    """`infrastructure`, `ai_engine` or `user`."""
    retry_can_help: bool
    deciding_line: str
    """The line of output, or the exit status, that decided."""
    where: str = ""
    """File and line of the script's own code that a Python error comes from, as `train.py:17`; empty for all others."""
    cause: str = ""
    """A finer reason, e.g. `nccl_timeout`, `port_in_use`, `xid_79` (`libs/failures/`); empty where the outcome of the
    attempt says it all."""
    confidence: float | None = None
    """0 to 1: how often a verdict of this kind is right; None in records from before it was known."""
    rule: str = ""
    """Id of the rule that knows the line; empty where something else decided, and where lines were not followed."""
    rank: int | None = None
    """Of the process that printed the line; None where that is not known, and where lines were not followed."""
    node_id: str = ""
    """Where it ran, as far as lines were followed; else empty."""
    gpu_index: int | None = None
    """Of its GPU on that node, as far as lines were followed and the rank is known."""
    root_of: list[int] = []
    """Ranks with lines that are consequences of this, ascending: a peer that has lost its connection, say."""


@event("gpu.suspected.v1", owner=OWNER, subject="node_id")
class GpuSuspected(Event, frozen=True, kw_only=True):
    """Failures of several jobs name this GPU, each with a cause that hardware is to blame for; placement cordons it.

    The failures that led here do not count again.
    """

    node_id: str
    index: int
    jobs: list[str]
    """That have failed there, in the order of their failures."""
    causes: list[str]
    """Ascending."""
    reason: Reason


@event("node.suspected.v1", owner=OWNER, subject="node_id")
class NodeSuspected(Event, frozen=True, kw_only=True):
    """The same of a node, where the failures do not name one of its GPUs."""

    node_id: str
    jobs: list[str]
    causes: list[str]
    reason: Reason


@event("failure.repeated.v1", owner=OWNER, subject="user")
class RepeatNoticed(Event, frozen=True, kw_only=True):
    """Several jobs of one user have failed of one cause that is the user's to mend; said at the next submission.

    The failures that led here do not count again.
    """

    user: str
    cause: str
    jobs: list[str]
    """In the order of their failures."""
    reason: Reason


@event("input.quarantined.v1", owner=OWNER, subject="input")
class InputQuarantined(Event, frozen=True, kw_only=True):
    """Jobs of several users have failed of one input: further jobs that name it are held until InputReleased."""

    input: str
    """As jobs name it in their `data`."""
    jobs: list[str]
    users: list[str]
    """Both in the order of the failures."""
    causes: list[str]
    """Ascending."""
    reason: Reason


@event("input.released.v1", owner=OWNER, subject="input")
class InputReleased(Event, frozen=True, kw_only=True):
    """Jobs that name the input may run again."""

    input: str
    reason: Reason


@event("retry.scheduled.v1", owner=OWNER, subject="job_id")
class RetryScheduled(Event, frozen=True, kw_only=True):
    """The job is tried again: attempt `attempt` may start at `not_before_s`."""

    job_id: str
    attempt: int
    """The coming attempt."""
    not_before_s: float
    """Seconds since the epoch."""
    reason: Reason
    consequence: str = ""
    """What the cause of the failure leads to (`libs/failures/consequences.py`); empty where lines were not followed."""
    avoided_nodes: list[str] = []
    """Where it is not placed while others can take it, ascending."""
    memory_bytes: int | None = None
    """Of the host, for each of its GPUs, from now on; None: as before."""
    env: dict[str, str] = {}
    """Variables that it is started with beside its own from now on."""
    retries_used: int | None = None
    """Of the job's `max_retries`, this attempt among them; None: from before that was recorded."""


@event("job.abandoned.v1", owner=OWNER, subject="job_id")
class JobAbandoned(Event, frozen=True, kw_only=True):
    """Final: the job failed and is not tried again."""

    job_id: str
    attempt: int
    exit_code: int | None
    signal: int | None
    reason: Reason
    consequence: str = ""
    """As in RetryScheduled."""
