"""Claims of the Philly study that need no runs: its figure 9, found again on curves that are made for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from libs.inspect.convergence import EPOCHS_OF_KILLED, EPOCHS_OF_PASSED, Convergence, JobCurve, figure_9
from libs.lifecycle import curves
from libs.lifecycle.curves import Curve, Epoch

JOBS, EPOCHS = 400, 100
BEST_AT_LAST = 0.8
"""Section 5.1: around 80 % of the passed jobs need all epochs for their best loss; the text says that of most killed
jobs as well."""
PLATEAU = 0.0005
"""How far a loss still falls after it has come near its lowest: less than the 0.1 % that the study looks at."""


@dataclass(frozen=True)
class Made:
    """How soon jobs come near their lowest loss, as parts of their epochs."""

    status: str
    looked_at: float
    soon: float
    soon_at: float
    late_at: float
    """`soon` of the jobs at `soon_at`, the others at `late_at`: so much GPU time is left as the study says."""


PASSED = Made("passed", EPOCHS_OF_PASSED, soon=0.75, soon_at=0.30, late_at=0.62)
KILLED = Made("killed", EPOCHS_OF_KILLED, soon=0.70, soon_at=0.35, late_at=0.65)


def _curve(made: Made, number: int, luck: random.Random, *, even: bool) -> JobCurve:
    """Losses fall fast until they are near the lowest, and hardly after that; `even`: by the same amount to the end."""
    near = round(EPOCHS * (made.soon_at if number < made.soon * JOBS else made.late_at))
    best = EPOCHS if luck.random() < BEST_AT_LAST else EPOCHS - luck.randrange(1, 10)
    curve = Curve()
    for epoch in range(1, EPOCHS + 1):
        if even:
            loss = 2.0 - epoch / EPOCHS
        elif epoch < near:
            loss = 1.1 + (near - epoch) / near
        else:
            loss = 1.0 + PLATEAU * abs(best - epoch) / EPOCHS
        curve = curves.take(curve, Epoch(epoch=float(epoch), loss=loss, gpu_s=60.0 * epoch))
    found, best_found = curve.near_best, curve.best
    assert found is not None and best_found is not None
    return JobCurve(
        job_id=f"{made.status}-{number}",
        status=made.status,
        epochs=float(EPOCHS),
        best_epoch=best_found.epoch,
        near_epoch=found.epoch,
        gpu_s=60.0 * EPOCHS,
        gpu_s_after=60.0 * EPOCHS - found.gpu_s,
    )


def _figure(made: Made, *, even: bool) -> Convergence:
    luck = random.Random(f"figure 9/{made.status}")
    return figure_9([_curve(made, number, luck, even=even) for number in range(JOBS)], made.status, made.looked_at)


def _found(made: Made, number: Callable[[Convergence], float | None]) -> Callable[[], dict[str, float]]:
    """A number of the figure; in the place of its curves such as fall evenly."""

    def computed() -> dict[str, float]:
        return {role: number(_figure(made, even=even)) or 0.0 for role, even in (("base", True), ("tested", False))}

    return computed


COMPUTED: dict[str, Callable[[], dict[str, float]]] = {
    "best-at-last": _found(PASSED, lambda found: found.best_at_last_ratio),
    "near-passed": _found(PASSED, lambda found: found.near_by_ratio),
    "near-killed": _found(KILLED, lambda found: found.near_by_ratio),
    "after-passed": _found(PASSED, lambda found: found.gpu_time_after_ratio),
    "after-killed": _found(KILLED, lambda found: found.gpu_time_after_ratio),
}
"""{name: {role: value}}"""
