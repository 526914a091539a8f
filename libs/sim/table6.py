"""Failures drawn as the Philly study counted them (Jeon et al., ATC'19, table 6): reason, time to failure, repetition.

What is drawn of the study: how many jobs of a size class fail, of which reason, how often in a row, after how long, and
how few users have most of them. What is not in its table is not drawn either: trials of one job are independent of
each other. A trial ends with a line that a rule of `libs/failures/` knows, so that an analysis can find its reason.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

import msgspec

from libs.failures.package import package_files
from libs.sim.options import Doom, Ending
from libs.sim.traces import TraceJob

STUDY_JOBS = 96_260
STUDY_KILLED, STUDY_PASSED, STUDY_UNSUCCESSFUL = 12_996, 66_696, 16_568
"""Table 5."""
MOST_FAILING = 0.5
"""Part of a size class that fails at most: a trace may have fewer wide jobs than failed in the study."""
MOST_TRIALS = 30
"""Of one job; the study's jobs with most trials are not known."""
MOST_TIMES_P95 = 10.0
"""No time to failure is longer than so many times the 95th percentile of its reason."""
_Z90, _Z95 = 1.2816, 1.6449
"""Quantiles of the standard normal distribution."""


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reason of the table."""

    trials: int
    jobs: int
    users: int
    p50_min: float
    p90_min: float
    p95_min: float
    one: int
    """Trials with 1 GPU."""
    few: int
    """With 2 to 4."""
    many: int
    """With more than 4."""

    def jobs_of(self, size: str) -> float:
        """Jobs of this reason in a size class; their trials are spread over the classes as the table says."""
        trials: int = getattr(self, size)
        return self.jobs * trials / self.trials

    def time_to_failure_s(self, luck: random.Random) -> float:
        """Log-normal below the median, then through the table's percentiles, on a logarithmic scale."""
        z = luck.gauss(0.0, 1.0)
        log50, log90, log95 = (math.log(minutes * 60) for minutes in (self.p50_min, self.p90_min, self.p95_min))
        if z <= _Z90:
            return math.exp(log50 + z * (log90 - log50) / _Z90)
        slope = (log95 - log90) / (_Z95 - _Z90)
        return min(math.exp(log90 + (z - _Z90) * slope), MOST_TIMES_P95 * self.p95_min * 60)


def size_class(gpus: int) -> str:
    """The table's column: `one`, `few` (2 to 4) or `many` GPUs."""
    return "one" if gpus == 1 else "few" if gpus <= 4 else "many"


@cache
def table() -> dict[str, Row]:
    """{reason: its row}."""
    text = files("libs.sim").joinpath("table6.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Row])


def drawn_ends(jobs: Sequence[TraceJob], seed: int) -> tuple[list[TraceJob], dict[str, Ending]]:
    """What is to be submitted, and how it ends.

    A job that fails has its user drawn from the few that the study saw with its reason. One that will not succeed works
    long enough to fail as late as was drawn.

    Args:
        jobs: of a trace. How its own jobs ended counts for nothing.
        seed: of the draws. Each job has a generator of its own.
    """
    chances = _chances(jobs)
    played, endings = [], {}
    for job in jobs:
        luck = random.Random(f"{seed}/table 6/{job.job_id}")
        reason = _reason(chances[size_class(job.gpus)], luck)
        if reason is None:
            is_killed = luck.random() < STUDY_KILLED / (STUDY_KILLED + STUDY_PASSED)
            endings[job.job_id] = Ending(is_killed=is_killed)
            played.append(job)
        else:
            failing, endings[job.job_id] = _failing(job, reason, len(jobs), luck)
            played.append(failing)
    return played, endings


def _chances(jobs: Iterable[TraceJob]) -> dict[str, dict[str, float]]:
    """{size class: {reason: part of its jobs that fails of it}}."""
    sizes = Counter(size_class(job.gpus) for job in jobs)
    found = {}
    for size, number in sizes.items():
        studied = STUDY_JOBS * number / sizes.total()
        of_reason = {reason: row.jobs_of(size) / studied for reason, row in table().items()}
        scale = min(1.0, MOST_FAILING / sum(of_reason.values()))
        found[size] = {reason: chance * scale for reason, chance in of_reason.items()}
    return found


def _reason(chances: dict[str, float], luck: random.Random) -> str | None:
    drawn = luck.random()
    for reason, chance in chances.items():
        drawn -= chance
        if drawn < 0:
            return reason
    return None


def _failing(job: TraceJob, reason: str, jobs: int, luck: random.Random) -> tuple[TraceJob, Ending]:
    row = table()[reason]
    trials = _trials(row.trials / row.jobs, luck)
    dooms = tuple(_doom(reason, row, luck) for _ in range(trials))
    succeeds = luck.random() >= STUDY_UNSUCCESSFUL / sum(each.jobs for each in table().values())
    user = job.user or f"user-{luck.randrange(max(1, round(row.users * jobs / STUDY_JOBS)))}"
    failing = replace(job, user=user, max_retries=trials if succeeds else trials - 1)
    if not succeeds and job.duration_s is not None:
        longest_s = max(doom.after_s or 0.0 for doom in dooms)
        failing = replace(failing, duration_s=max(job.duration_s, longest_s))
    return failing, Ending(dooms=dooms)


def _trials(mean: float, luck: random.Random) -> int:
    """Failures of one job: geometrically distributed from 1 on."""
    if mean <= 1.0:
        return 1
    return min(MOST_TRIALS, 1 + int(math.log(1.0 - luck.random()) / math.log(1.0 - 1.0 / mean)))


def _doom(reason: str, row: Row, luck: random.Random) -> Doom:
    lines = _lines()[reason]
    return Doom(
        at_ratio=1.0,
        after_s=row.time_to_failure_s(luck),
        exit_code=1,
        signal=None,
        stderr_tail=luck.choice(lines),
        reason=reason,
    )


@cache
def _lines() -> dict[str, list[str]]:
    """{reason: last lines of its failures}: the examples of its rules; nothing is said where there is no signature."""
    found = {reason: [""] if reason == "no_signature" else [] for reason in table()}
    for rule in package_files().rules:
        if rule.reason in found and "stderr" in rule.streams and not rule.context:
            found[rule.reason].append(rule.example)
    return found
