"""Sweeps and trials in words and numbers, for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from libs.cli.output import Column, age, count, duration
from libs.kernel.words import counted

Row = dict[str, Any]

SWEEPS = (
    Column("ID", lambda s: s["id"]),
    Column("NAME", lambda s: s["name"]),
    Column("TENANT", lambda s: s["tenant"]),
    Column("USER", lambda s: s["user"], wide=True),
    Column("STATE", lambda s: s["state"]),
    Column("TRIALS", lambda s: f"{sum(s['counts'].values())}/{s['planned']}"),
    Column("RUNNING", lambda s: str(s["counts"].get("RUNNING", 0))),
    Column("METRIC", lambda s: s["metric"]),
    Column("BEST", lambda s: number(s["best_value"])),
    Column("PARAMETERS", lambda s: settings(s["best_parameters"])),
    Column("WHY", lambda s: s["message"], wide=True),
    Column("AGE", lambda s: age(s["submitted_s"]), runs_on=True),
)


def trial_columns(found: Row) -> list[Column]:
    """The columns of a sweep's trials, one per parameter among them."""
    return [
        Column("TRIAL", lambda t: f"{t['number']}{'*' if t['favourite'] else ''}"),
        Column("JOB", lambda t: t["job_id"]),
        *(_parameter(name) for name in found["spec"]["space"]),
        Column("STATE", state_of),
        Column("STEP", lambda t: "–" if t["last_step"] is None else count(t["last_step"])),
        Column("LAST", lambda t: number(t["last_value"])),
        Column("BEST", lambda t: number(t["best_value"])),
        Column("REPORTS", lambda t: str(t["reports"]), wide=True),
        Column("PRIORITY", lambda t: "–" if t["priority"] is None else str(t["priority"]), wide=True),
        Column("WHY", lambda t: t["message"]),
    ]


def _parameter(name: str) -> Column:
    return Column(name, lambda t: value(t["parameters"].get(name)))


def state_of(trial: Row) -> str:
    """How its job is, and once it is pruned or over, how it has ended."""
    return str((trial["job_state"] or trial["state"]) if trial["state"] == "RUNNING" else trial["state"])


def described(found: Row) -> list[str]:
    """A sweep line by line, without its trials."""
    fields = [(name, text) for name, text in _fields(found) if text]
    width = max(len(name) for name, _ in fields)
    return [f"{name:<{width}}  {text}" for name, text in fields]


def _fields(found: Row) -> Iterator[tuple[str, str]]:
    spec = found["spec"]
    yield "sweep", f"{found['id']}  {found['name']}"
    yield "state", f"{found['state']}: {found['message']} ({found['reason']})"
    yield "looks for", _objective(found)
    yield "best", best(found)
    yield "trials", _counts(found)
    at_once = f", at most {spec['at_once']} at once" if spec["at_once"] else ""
    favourites = f", {spec['favourites']} go first" if spec["favourites"] else ""
    yield "how", f"{spec['sampler']}, pruned by {spec['pruner']}{at_once}{favourites}"
    yield "command", shlex.join(spec["trial"]["command"])
    yield "owner", f"tenant {found['tenant']}, user {found['user']}"
    yield "submitted", f"{age(found['submitted_s'])} ago by {found['submitted_by']}"
    yield "took", duration(found["ended_s"] - found["submitted_s"]) if found["ended_s"] else ""


def _objective(found: Row) -> str:
    least = "at least" if found["direction"] == "maximize" else "at most"
    target = "" if found["target"] is None else f", {least} {number(found['target'])}"
    return f"{'most' if found['direction'] == 'maximize' else 'least'} {found['metric']}{target}"


def summary(found: Row, *, state: bool = True) -> str:
    """How many trials are how, and the best value so far; `state`: with the sweep's state before it."""
    trials = f"{_counts(found)}; best {best(found)}" if found["best_value"] is not None else _counts(found)
    return f"{found['state']}: {trials}" if state else trials


def _counts(found: Row) -> str:
    states = ", ".join(f"{trials} {how.lower()}" for how, trials in found["counts"].items()) or "none yet"
    return f"{sum(found['counts'].values())} of {counted(found['planned'], 'trial')}: {states}"


def best(found: Row) -> str:
    """The best value, its trial and the trial's parameters; empty when nothing was reported."""
    if found["best_value"] is None:
        return ""
    return f"{number(found['best_value'])} by trial {found['best_trial']} ({settings(found['best_parameters'])})"


def most_interesting(found: Row, most: int) -> list[Row]:
    """At most so many trials, by number: favourites first of all, then those that run, then the best."""
    sign = -1.0 if found["direction"] == "maximize" else 1.0

    def rank(trial: Row) -> tuple[bool, bool, float]:
        worth = float("inf") if trial["best_value"] is None else sign * trial["best_value"]
        return not trial["favourite"], trial["state"] != "RUNNING", worth

    chosen = sorted(found["trials"], key=rank)[:most]
    return sorted(chosen, key=lambda trial: int(trial["number"]))


def settings(parameters: Row) -> str:
    """`hidden=64 lr=0.0123`."""
    return " ".join(f"{name}={value(chosen)}" for name, chosen in parameters.items())


def value(chosen: Any) -> str:
    """A parameter's value in few characters."""
    return number(chosen) if isinstance(chosen, float) else str(chosen)


def number(found: float | None) -> str:
    """Four significant digits."""
    return "–" if found is None else f"{found:.4g}"
