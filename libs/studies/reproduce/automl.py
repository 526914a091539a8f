"""Gandiva's AutoML study (OSDI'18, section 6.3, tables 3 and 4): how soon a search finds what it looks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from libs.studies.experiments.runs import Result, RunSpec
from libs.studies.generators.sweep import SweepWorkload
from libs.studies.report import searches
from libs.studies.report.drawing import Drawing
from libs.studies.reproduce.delays import MOVE_S, RESUME_S, START_S, SUSPEND_S
from libs.studies.reproduce.metrics import ratio
from libs.studies.reproduce.study import NOT_STATED, Accepted, Chapter, Claim, times

TARGET = 0.8
"""Accuracy that two or three of a hundred trials reach."""
SEEDS = (0, 1, 2, 3, 4)
SMALL_GPUS, LARGE_GPUS = 4, 16
FIFO, JUDGED, SHARED, MOVED = "fifo", "fifo, judged", "turns", "turns, moved"
_NOTE = "One search of {} trials per seed, on an artificial surface; the same trials in the same order both times."


def claims(trials: int) -> list[Claim]:
    """What tables 3 and 4 say, and what part of it early judgement has."""
    return [
        *(
            _claim(
                trials,
                f"table3-{gpus}",
                source="table 3",
                statement=f"A target accuracy is found sooner, on {gpus} GPUs",
                paper="5 to 7 times",
                gpus=gpus,
                ways=(FIFO, SHARED),
                least=3.0,
            )
            for gpus in (SMALL_GPUS, LARGE_GPUS)
        ),
        _claim(
            trials,
            "judged",
            source="6.3",
            statement="What first in, first out would find as soon, if it gave trials up by their curves as well",
            ways=(JUDGED, SHARED),
            least=0.5,
            note=" Below 1: most of the gain is the early judgement, and with trials as short as these, "
            "for which three reports are enough, turns only delay it.",
        ),
        _claim(
            trials,
            "table4",
            source="table 4",
            statement="With migration sooner still",
            paper="13 times",
            ways=(FIFO, MOVED),
            least=5.0,
            note=" Trials of one GPU each, on GPUs that are all alike: a trial that moves is no faster there.",
        ),
    ]


def _claim(
    trials: int,
    name: str,
    *,
    source: str,
    statement: str,
    ways: tuple[str, str],
    least: float,
    paper: str = NOT_STATED,
    gpus: int = LARGE_GPUS,
    note: str = "",
) -> Claim:
    """The second of two ways finds the target so many times sooner than the first."""
    first, second = ways
    return Claim(
        claim_id=f"automl-{name}",
        source=source,
        statement=statement,
        paper=paper,
        runs={first: runs(trials, gpus, first), second: runs(trials, gpus, second)},
        measure=ratio(first, second, took_s),
        show=times,
        accepted=Accepted(least=least),
        note=_NOTE.format(trials) + note,
    )


def chapter(trials: int) -> Chapter:
    """Both curves, on the larger cluster."""
    shown = [run for way in (FIFO, JUDGED, SHARED, MOVED) for run in runs(trials, LARGE_GPUS, way)]
    text = f"{trials} trials look for an accuracy of {TARGET:g} on {LARGE_GPUS} GPUs."
    return Chapter("Searching for hyper-parameters", text, shown, _pictures)


def runs(trials: int, gpus: int, way: str) -> list[RunSpec]:
    """One search per seed.

    Args:
        trials: of each search.
        gpus: of the cluster.
        way: `fifo`: every trial to its end, in turn; `fifo, judged`: those that promise nothing are given up;
            `turns`: all start at once and take turns, too, and the best have GPUs of their own; `turns, moved`: jobs
            may move to other servers as well.
    """
    shares = way in (SHARED, MOVED)
    workload = SweepWorkload(trials=trials, target=TARGET, pruned=way != FIFO, favourites=gpus // 2 if shares else 0)
    first = RunSpec(
        policy="gandiva" if shares else "strict_fifo",
        workload=workload,
        cluster=f"p40={gpus}",
        start_delay_s=START_S,
        suspend_delay_s=SUSPEND_S,
        resume_delay_s=RESUME_S,
        move_delay_s=MOVE_S if way == MOVED else None,
    )
    return [replace(first, seed=seed) for seed in SEEDS]


def way_of(result: Result) -> str:
    """How the run has searched."""
    spec = result.spec
    if spec.policy != "strict_fifo":
        return SHARED if spec.move_delay_s is None else MOVED
    assert isinstance(spec.workload, SweepWorkload)
    return JUDGED if spec.workload.pruned else FIFO


def took_s(result: Result) -> float | None:
    """From the sweep's arrival to a trial that reached the target; None: none did."""
    (sweep,) = result.document["sweeps"]
    return sweep["took_s"] if sweep["outcome"] == "target_reached" else None


def _pictures(results: Sequence[Result]) -> list[Drawing]:
    return [searches.best_so_far(results, "automl-best", "Best accuracy found so far", way_of)]
