"""What a script and a sweep tell each other: the parameters to try, and how good they are. Works without torch.

A report is one line of JSON, {"step": number, "values": {name: finite number}}, appended in one piece to a file in the
task's folder. The agent reads it from there, also when it was away meanwhile.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

from .gang import place

REPORTS = "SANJAYA_REPORTS"
"""Path of the file; the agent sets it for every process of a task."""
PARAMETERS = "SANJAYA_TRIAL_PARAMS"
MOST_METRICS, LONGEST_NAME = 16, 64
"""Metrics of a report, characters of a name."""


class Reporter:
    """One per process."""

    def __init__(self) -> None:
        self._step = -math.inf
        self._values: dict[str, float] = {}
        """Reported of that step so far."""
        self._latest: dict[str, float] = {}
        """{metric: the last value of it that was reported}"""
        self._left_out: set[str] = set()
        """Metrics of which was said that they are not finite."""

    def latest(self, metric: str) -> float | None:
        """The last finite value of a metric that was reported here; None: there was none."""
        return self._latest.get(metric)

    def report(self, /, step: float, **metrics: float) -> None:
        """Say how good the training is at this step. Takes some 30 microseconds, and 100 bytes of disk for a while.

        Of several reports within a second the last one alone is passed on, so a sweep's metric belongs into each. The
        last one of all is always passed on. Rank 0's count, the other ranks' are ignored. Without an agent reports are
        checked, and go nowhere.

        Args:
            step: as the script counts: epochs, mini-batches. Must not decrease; of the same step further metrics may
                be reported, and count together.
            metrics: {name: number}, at most 16. One that is NaN or infinite is left out, which is said once on stderr.

        Raises:
            TypeError: the step or a metric is no number.
            ValueError: the step is not finite or lower than the last one; there are no metrics or too many; a name
                is empty, not printable or longer than 64 characters.
        """
        if place()[0] != 0:
            return
        at = _number("report: step", step)
        where = f"report(step={step})"
        if not math.isfinite(at):
            raise ValueError(f"sanjaya: {where}: expected a finite step")
        if at < self._step:
            raise ValueError(f"sanjaya: {where}: expected a step not below the last one, {self._step}")
        before = self._values if at == self._step else {}
        _check_names(where, metrics, before)
        values = {name: _number(f"{where}: metric {name!r}", value) for name, value in metrics.items()}
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._step, self._values = at, {**before, **finite}
        self._latest |= finite
        for name, value in values.items():
            if name not in finite and name not in self._left_out:
                self._left_out.add(name)
                _warn(f"{where}: {name} is {value} and left out, as it will be whenever it is not finite")
        if finite:
            _append(where, {"step": at, "values": self._values})


REPORTER = Reporter()
"""The script's."""


def parameters() -> dict[str, Any]:
    """What this trial of a sweep is to try, {name: value}; empty where there is no sweep.

    Raises:
        ValueError: SANJAYA_TRIAL_PARAMS is not a JSON object.
    """
    text = os.environ.get(PARAMETERS)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f'sanjaya: {PARAMETERS} is {text[:80]!r}; expected a JSON object, such as {{"lr": 0.01}}')
    return found


def _number(what: str, value: Any) -> float:
    """Also of a tensor or a NumPy number."""
    if not hasattr(value, "__float__"):  # float() would take text
        raise TypeError(f"sanjaya: {what} is of type {type(value).__name__}; expected a number")
    try:
        return float(value.detach() if hasattr(value, "detach") else value)  # torch warns of a tensor with a gradient
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TypeError(f"sanjaya: {what} is of type {type(value).__name__}; expected one number: {error}") from error


def _check_names(where: str, metrics: dict[str, Any], before: dict[str, float]) -> None:
    count = len({**before, **metrics})
    if not metrics or count > MOST_METRICS:
        raise ValueError(f"sanjaya: {where}: {count} metrics; expected 1 to {MOST_METRICS}")
    for name in metrics:
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            raise ValueError(
                f"sanjaya: {where}: a metric is called {name[:80]!r}; expected 1 to {LONGEST_NAME} printable characters"
            )


def _append(where: str, report: dict[str, Any]) -> None:
    """With a single write, so that the agent never sees half of it; a full disk must not end the training."""
    path = os.environ.get(REPORTS)
    if path is None:
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(report).encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        _warn(f"{where} is lost: {error}")


def _warn(text: str) -> None:
    print(f"sanjaya: {text}", file=sys.stderr)
