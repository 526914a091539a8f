"""Rows about sweeps, as the gateway answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.contracts.read_models import SweepRow, TrialRow


def sweep(row: SweepRow, counts: Mapping[str, int]) -> dict[str, Any]:
    """The fields of a `Sweep` answer.

    Args:
        counts: {state: number} of its trials.
    """
    return {
        "tenant": row.spec["trial"]["tenant"],
        "user": row.spec["trial"]["user"],
        "planned": row.spec["trials"],
        "counts": dict(counts),
        **objective(row),
    } | {name: getattr(row, name) for name in _OF_SWEEP}


_OF_SWEEP = (
    "id",
    "name",
    "state",
    "reason",
    "message",
    "best_trial",
    "best_value",
    "best_parameters",
    "submitted_s",
    "ended_s",
    "version",
)


def objective(row: SweepRow) -> dict[str, Any]:
    """What is looked for: `metric`, `direction` and `target`."""
    wanted = row.spec["objective"]
    return {
        "metric": wanted["metric"],
        "direction": "maximize" if wanted["maximize"] else "minimize",
        "target": wanted["target"],
    }


def trial(row: TrialRow, job_state: str | None, priority: int | None) -> dict[str, Any]:
    """The fields of a `Trial` answer.

    Args:
        job_state: of its job, None before the job is known.
        priority: of its job.
    """
    return {"job_state": job_state, "priority": priority} | {name: getattr(row, name) for name in _OF_TRIAL}


_OF_TRIAL = (
    "number",
    "job_id",
    "parameters",
    "state",
    "favourite",
    "reason",
    "message",
    "reports",
    "best_value",
    "last_step",
    "last_value",
    "started_s",
    "ended_s",
)
