"""What a paper states, read from its table of claims (`claims/*.toml`): data, one `[[claim]]` per statement.

    [[claim]]
    id = "fig8-jct"                  # what reports, `--only` and stored results call it
    row = "V-8a"                     # its number in the list of all claims of the paper
    where = "figure 8a, section 7.3"
    statement = "..."
    paper = "3.5×"                   # the paper's number
    source = "text; plot: ..."       # where the number is from: text, plot, or a version of the paper
    setup = "..."                    # what is set up here, and how it differs
    metric = "avg_jct_s"             # what is measured of a run (`metrics.METRICS`)
    compare = "over"                 # how the arms become one value (`comparing.COMPARISONS`)
    base = {workload = "single", policy = "max_min_fairness", options = {heterogeneity_agnostic = true}, at = [0.96]}
    tested = {workload = "single", policy = "max_min_fairness", at = [0.96]}
    accepted = {least = 1.4, reason = "..."}
    accepted_full = {least = 2.8, most = 4.2, reason = "..."}

A claim without `tested` and without `computed` is not measured, and `waits` says what for. `[[picture]]` tables have
the points of the paper's plots, to be drawn beside what was measured.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

TABLES = Path(__file__).with_name("claims")
NOT_STATED = "not stated"


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One side of a comparison: the same runs for every seed."""

    workload: str
    """By the name that the paper's plan has for it."""
    policy: str
    options: dict[str, Any] = {}
    """Of the runs (`RunSpec`)."""
    at: list[float] = []
    """Loads as parts of the sustainable one, numbers of jobs, places, or whatever the workload is varied by."""
    full_at: list[float] | None = None
    """At the papers' own size; None: the same."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured values that count as agreement, and why these."""

    least: float | None = None
    most: float | None = None
    reason: str

    def __contains__(self, value: float) -> bool:
        above = self.least is None or value >= self.least
        return above and (self.most is None or value <= self.most)


class Stated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim as the table has it."""

    id: str
    row: str
    where: str
    """Figure, table or section."""
    statement: str
    paper: str = NOT_STATED
    source: str = ""
    setup: str = ""
    metric: str = ""
    base_metric: str = ""
    """Of `base`, where it is another one."""
    compare: str = "value"
    show: str = "times"
    limit: float | None = None
    """Of comparisons that need one."""
    seeds: int | None = None
    """At the default size, at most so many."""
    turn: int | None = None
    """Runs of claims with a turn come before all others, the lowest first and with all of their seeds: an interrupted
    study then has whole rows."""
    base: Arm | None = None
    tested: Arm | None = None
    instead: Arm | None = None
    """What takes the place of `tested` when the arms are exchanged, where that is not `base`: claims that two things
    are nearly equal would pass either way round."""
    isolated: Arm | None = None
    """Runs of the isolated policy that the metric divides by."""
    computed: str = ""
    """Instead of runs: a value that follows from the table of rates or from one allocation (`computed.COMPUTED`)."""
    accepted: Accepted | None = None
    accepted_full: Accepted | None = None
    """At the papers' own size; None: the same."""
    cause: str = ""
    """Why it does not hold here, as far as known."""
    waits: str = ""
    """What a claim that is not measured waits for, or what measures it instead."""

    @property
    def arms(self) -> dict[str, Arm]:
        """{role: arm} of those that are given."""
        given = {"base": self.base, "tested": self.tested, "instead": self.instead, "isolated": self.isolated}
        return {role: arm for role, arm in given.items() if arm is not None}


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a picture."""

    label: str
    """As `look` in the reports takes it: a policy with its options."""
    claims: list[str]
    """`claim id/role` of the values that are drawn."""
    paper: list[tuple[float, float]] = []
    """The paper's points: place, and value in the picture's unit."""


class Picture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plot of the paper, as numbers."""

    name: str
    title: str
    text: str
    place: str
    """What goes along the horizontal axis, with its unit."""
    value: str
    """What goes up, with its unit."""
    divided_by: float = 1.0
    """From the metric's unit to the picture's."""
    curves: list[Curve]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that one paper states."""

    title: str
    text: str
    """Which text of the paper, and what the reader must know of the set-up."""
    claim: list[Stated]
    picture: list[Picture] = []


@cache
def table_of(paper: str) -> Table:
    """The table of a paper by its name.

    Raises:
        msgspec.ValidationError: the file does not have the form above.
    """
    return msgspec.convert(tomllib.loads((TABLES / f"{paper}.toml").read_text(encoding="utf-8")), Table)
