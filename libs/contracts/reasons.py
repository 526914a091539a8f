"""Why a decision was taken, as data: `why` and the web page print these and never re-invent them."""

from __future__ import annotations

import msgspec

Number = int | float | str | bool


class Rejected(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One alternative that was looked at and not taken."""

    what: str
    """The alternative: a node, a GPU type, another job."""
    code: str
    """CamelCase token: why not."""
    numbers: dict[str, Number] = {}


class Reason(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cause of a decision: a stable token for machines, a sentence for people, and the numbers compared."""

    code: str
    """CamelCase token, stable across releases (the `PendingReason` tokens for waiting jobs)."""
    message: str
    """One sentence, ready to print."""
    numbers: dict[str, Number] = {}
    """What was compared. Of a refusal that the passing of time alone may end, one of `MOMENTS` says when it may."""
    rejected: list[Rejected] = []

    @property
    def until_s(self) -> float | None:
        """The moment at which the passing of time alone may end the refusal; None: only an event may."""
        found = next((self.numbers[name] for name in MOMENTS if name in self.numbers), None)
        return float(found) if isinstance(found, int | float) else None


MOMENTS = ("until_s", "not_before_s", "retry_s")
"""Names of numbers that are the moment at which time alone may end a refusal, in seconds since the epoch. Each of these
moments is a wake-up of the core that has refused."""


class PendingReason:
    """Why a job waits, in order of precedence (the first that holds is reported)."""

    ON_HOLD = "OnHold"
    DEPENDENCY_NOT_MET = "DependencyNotMet"
    """It waits for other jobs to end."""
    INPUT_QUARANTINED = "InputQuarantined"
    """Jobs of several users have failed of data that it names; an operator releases them."""
    ARRAY_LIMIT = "ArrayLimit"
    """As many jobs of its array as the user allows at once have been let through and have not ended."""
    TRIAL_PENDING = "TrialPending"
    """Its trial on one GPU comes first, and has not been placed or judged."""
    BACKOFF = "Backoff"
    """Its last attempt has failed, and the next one begins after a while."""
    EXCEEDS_QUOTA = "ExceedsQuota"
    """Its tenant is at a limit of its own."""
    NEVER_FITS = "NeverFits"
    FAIR_SHARE = "FairShare"
    """It has had its share, and others use the rest: its tenant is at its guarantee, or its share of the GPUs' time
    gives it none in this round, or its turn comes with another slice."""
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    """GPUs are its own as soon as the jobs have left that have to leave them."""
    BEHIND = "Behind"
    """A job that needs the same goes first; the time counts for what that one waits for."""
    HEALTHY_GPUS_MISSING = "HealthyGpusMissing"
    """Fewer GPUs than it needs are healthy, on nodes that are up and not draining."""
    FEATURE_MISSING = "FeatureMissing"
    """No usable node, or too few of them, have what it needs beside GPUs: an image runner, data."""
    INSUFFICIENT_GPUS = "InsufficientGpus"
    """Fewer GPUs are free than it needs."""
    INSUFFICIENT_CPUS = "InsufficientCpus"
    """Enough GPUs are free, but not enough CPUs of their nodes beside them."""
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    """Enough GPUs are free, but not enough memory of their nodes beside them."""
    GANG_ACQUIRING = "GangAcquiring"
    """Enough GPUs are free, and it acquires those that are close together as they become free."""
    ACQUIRE_BACKOFF = "AcquireBackoff"
    """It has given back what it had acquired, and tries again after a while."""
    LOCALITY_RELAXING = "LocalityRelaxing"
    """It fits spread over servers, and waits a bounded time for a better place."""
    GANG_FRAGMENTED = "GangFragmented"
    """Enough GPUs are free in total, but not together as the gang needs them."""
    NO_GUEST_SEAT = "NoGuestSeat"
    """It may run beside guaranteed jobs, and no GPU that is idle enough takes it."""
    NO_RENDEZVOUS_PORT = "NoRendezvousPort"
    """It fits, and all ports at which gangs may meet on its first node are in use."""
    NOT_YET_EVALUATED = "NotYetEvaluated"


CAUSES = frozenset(value for name, value in vars(PendingReason).items() if name.isupper())
"""Every cause of a wait. Other codes of a job that is queued again say why it has left its GPUs."""

DEPENDENCY_NEVER_MET = "DependencyNeverMet"
"""Why a job is rejected: what it waits for has ended otherwise than it must have."""
