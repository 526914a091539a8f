"""The claims of Gandiva's evaluation (OSDI'18, section 6), each with how it is measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.gandiva import GPU_TYPE, UTILISATIONS, GandivaWorkload
from libs.studies.report import completion
from libs.studies.report.drawing import Drawing
from libs.studies.reproduce import automl
from libs.studies.reproduce.delays import MOVE_S, RESUME_S, START_S, SUSPEND_S
from libs.studies.reproduce.metrics import field, mean_of
from libs.studies.reproduce.study import Accepted, Chapter, Claim, Roles, Study, percent

OVERLOAD = 1.5
"""GPU hours that arrive in an hour, per GPU."""


@dataclass(frozen=True)
class Size:
    """How large the study is."""

    gpus: int = 180
    jobs: int = 1000
    seeds: tuple[int, ...] = (0,)
    trials: int = 100
    """Of a search for hyper-parameters; five searches are run whatever the seeds."""


PAPER_SIZE = Size(seeds=(0, 1, 2))


def study(size: Size) -> Study:
    """All claims, also those that nothing is measured of yet."""
    fifo = _runs(size, "strict_fifo")
    turns = _runs(size, "gandiva", utilisations={})
    packs = _runs(size, "gandiva", utilisations=UTILISATIONS)
    early = Chapter(
        "Early feedback",
        f"{size.jobs:,} jobs of five models arrive at {OVERLOAD:g} times what {size.gpus} GPUs can do.",
        [*fifo, *turns, *packs],
        _pictures,
    )
    stay, move = _gangs(size, None), _gangs(size, MOVE_S)
    migration = Chapter(
        "Migration",
        f"{size.jobs:,} jobs, half of them gangs of 2 and 4 that are slower when spread, on {size.gpus} GPUs.",
        [*stay, *move],
        _migration_pictures,
    )
    claims = [*_early_claims(fifo, turns, packs), *_migration_claims(stay, move), *automl.claims(size.trials)]
    chapters = [early, migration, automl.chapter(size.trials)]
    return Study("Gandiva (OSDI'18), in simulation", claims, chapters)


def _runs(size: Size, policy: str, utilisations: dict[str, float] | None = None) -> list[RunSpec]:
    workload = GandivaWorkload(jobs=size.jobs, jobs_per_hour=OVERLOAD * size.gpus)
    return [
        RunSpec(
            policy=policy,
            workload=workload,
            cluster=f"{GPU_TYPE}={size.gpus}",
            seed=seed,
            suspend_delay_s=SUSPEND_S,
            resume_delay_s=RESUME_S,
            utilisations=utilisations or {},
        )
        for seed in size.seeds
    ]


def _gangs(size: Size, move_delay_s: float | None) -> list[RunSpec]:
    """As many GPU hours arrive as there are; 2.0 GPUs is the mean width of a gang."""
    workload = GandivaWorkload(jobs=size.jobs, jobs_per_hour=size.gpus / 2.0, gangs=True)
    return [
        RunSpec(
            policy="gandiva",
            workload=workload,
            cluster=f"{GPU_TYPE}={size.gpus}",
            seed=seed,
            suspend_delay_s=SUSPEND_S,
            resume_delay_s=RESUME_S,
            start_delay_s=START_S,
            move_delay_s=move_delay_s,
        )
        for seed in size.seeds
    ]


def _migration_claims(stay: list[RunSpec], move: list[RunSpec]) -> list[Claim]:
    both = "Against the same policy without migration, both with turns. The trace is drawn, not the paper's."
    return [
        Claim(
            claim_id="migration-jct",
            source="6.3, trace",
            statement="Migration lowers the average completion time",
            paper="-26.8 %",
            runs={"move": move, "stay": stay},
            measure=_change("move", "stay", field("avg_jct_s")),
            show=percent,
            accepted=Accepted(most=-0.02),
            note=both,
        ),
        Claim(
            claim_id="migration-makespan",
            source="6.3, trace",
            statement="Migration lowers the makespan",
            paper="-17.8 %",
            runs={"move": move, "stay": stay},
            measure=_change("move", "stay", field("makespan_s")),
            show=percent,
            accepted=Accepted(most=-0.005),
            note=both,
        ),
    ]


def _early_claims(fifo: list[RunSpec], turns: list[RunSpec], packs: list[RunSpec]) -> list[Claim]:
    both = "Against first in, first out without sharing."
    return [
        Claim(
            claim_id="early-feedback",
            source="6.3, early feedback",
            statement="Jobs have done their first 100 mini-batches much sooner",
            paper="-77 %",
            runs={"sharing": packs, "fifo": fifo},
            measure=_change("sharing", "fifo", field("avg_time_to_100_steps_s")),
            show=percent,
            accepted=Accepted(most=-0.5),
            note=f"{both} Mean time from submission; the mix of models is table 1's, rates and lengths are ours.",
        ),
        Claim(
            claim_id="early-turns",
            source="6.3, early feedback",
            statement="Turns alone bring most of it",
            runs={"turns": turns, "fifo": fifo},
            measure=_change("turns", "fifo", field("avg_time_to_100_steps_s")),
            show=percent,
            accepted=Accepted(most=-0.5),
            note=both,
        ),
        Claim(
            claim_id="utilisation",
            source="6.3, cluster utilisation",
            statement="GPUs are used more, because jobs that leave them idle share one",
            paper="+26 %",
            runs={"sharing": packs, "fifo": fifo},
            measure=_change("fifo", "sharing", field("makespan_s")),
            show=percent,
            accepted=Accepted(least=0.05),
            note=f"{both} The same work is done in a shorter time: utilisation grows as the makespan shrinks.",
        ),
        Claim(
            claim_id="turns-cost",
            source="6.1",
            statement="Turns cost less than 2 % of the throughput",
            paper="< 2 %",
            runs={"turns": turns, "fifo": fifo},
            measure=_change("turns", "fifo", field("makespan_s")),
            show=percent,
            accepted=Accepted(most=0.02),
            note="Slices of 60 s, with the delays of suspending and resuming that were measured live on virtual GPUs.",
        ),
    ]


def _change(role: str, base: str, metric: Callable[[Result], float | None]) -> Callable[[Roles], float | None]:
    """By what part a role's mean differs from the base's."""

    def measured(roles: Roles) -> float | None:
        a, b = mean_of(roles[role], metric), mean_of(roles[base], metric)
        return None if a is None or not b else a / b - 1.0

    return measured


def _pictures(results: Sequence[Result]) -> list[Drawing]:
    return [
        completion.distribution(
            results,
            "early-feedback",
            "Time from submission to the 100th mini-batch",
            _minutes_to_100,
            "minutes",
        ),
        completion.distribution(results, "early-jct", "Distribution of completion times"),
    ]


def _migration_pictures(results: Sequence[Result]) -> list[Drawing]:
    return [completion.distribution(results, "migration-jct", "Distribution of completion times of gangs")]


def _minutes_to_100(result: Result) -> list[float]:
    done = [row for row in result.measured if row["steps_100_s"] is not None]
    return [(row["steps_100_s"] - row["submit_s"]) / 60 for row in done]
