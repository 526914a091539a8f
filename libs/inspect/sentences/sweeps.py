"""Events of sweeps, in sentences."""

from __future__ import annotations

from libs.contracts import sweeps
from libs.inspect.sentences.table import tells
from libs.kernel.words import counted


@tells(sweeps.TrialStarted)
def _(e: sweeps.TrialStarted) -> str:
    return f"trial {e.number} tries " + ", ".join(f"{name} {_short(value)}" for name, value in e.parameters.items())


@tells(sweeps.TrialPromoted)
def _(e: sweeps.TrialPromoted) -> str:
    return f"trial {e.number} goes before the others: {e.reason.message}"


@tells(sweeps.TrialDemoted)
def _(e: sweeps.TrialDemoted) -> str:
    return f"trial {e.number} no longer goes before the others: {e.reason.message}"


@tells(sweeps.TrialPruned)
def _(e: sweeps.TrialPruned) -> str:
    return f"trial {e.number} is given up: {e.reason.message}"


@tells(sweeps.TrialEnded)
def _(e: sweeps.TrialEnded) -> str:
    best = "" if e.value is None else f", at best {e.value:.4g}"
    return f"trial {e.number} is over: {e.outcome} after {counted(e.reports, 'report')}{best}"


@tells(sweeps.SweepEnded)
def _(e: sweeps.SweepEnded) -> str:
    best = "" if e.best_value is None else f"; the best was trial {e.best_trial} with {e.best_value:.4g}"
    return f"the sweep is over, {e.outcome.replace('_', ' ')}: {e.reason.message}{best}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
