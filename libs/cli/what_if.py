"""`what-if`: what would have become of recorded jobs under another policy."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from libs.cli.audit import ArchiveDir, Cell, Source, opened
from libs.cli.context import FAILED, USAGE, Gateway, fail
from libs.cli.listing import AsJson
from libs.cli.output import Column, Form, Row, clock, show, show_document
from libs.cli.policy_options import SpaceSharing
from libs.cli.progress import progress
from libs.cli.rehearsing import policy_named, setting_changed
from libs.kernel.words import counted, plural

if TYPE_CHECKING:
    from libs.studies.what_if import Comparison, WhatIf

SHOWN = 10
"""Jobs that are printed."""
SAME_S = 1.0
"""Ends that are less apart count as the same."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("what-if")(what_if)


def what_if(
    log: Source = None,
    policy: Annotated[str, typer.Option(help="The other policy; as `sanjaya policy show` lists them.")] = "",
    changed: Annotated[
        list[str] | None, typer.Option("--set", help="A setting with it, e.g. placement.slice_s=30; may be repeated.")
    ] = None,
    begin: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="From this offset of control on.")] = 0,
    space_sharing: SpaceSharing = False,
    as_json: AsJson = False,
    archive: ArchiveDir = None,
    cell: Cell = None,
    gateway: Gateway = None,
) -> None:
    """What would have become of the jobs of a log under another policy: how long they wait, and when they end.

    The jobs that had not ended at --from are simulated twice on the log's servers, under its policy and under the
    other. A job's work is the time for which it held GPUs on the log; failures and cancellations count as ends.
    `rehearse` is another question: whether each recorded decision would have been the same.
    """
    from msgspec import structs, to_builtins

    from libs.runtime.roster import roster
    from libs.sim.simulation import Stalled
    from libs.studies.what_if import what_if as compared

    if not policy:
        fail("--policy is missing: which one is to be compared", USAGE, "sanjaya policy show")
    other = structs.replace(policy_named(policy, "what-if"), space_sharing=space_sharing)
    changes = [setting_changed(text, "what-if") for text in changed or []]
    try:
        with opened(log, cell, gateway, archive) as found, progress("simulating") as watch:
            result = compared(
                found,
                roster().SERVICES,
                other,
                from_offset=begin,
                changes=changes,
                watch=lambda ended: watch(ended, None),
            )
    except Stalled as error:
        fail(str(error), FAILED)
    if as_json:
        show_document(to_builtins(result), Form.JSON)
    else:
        _print(result)


def _print(found: WhatIf) -> None:
    jobs = found.jobs
    typer.echo(f"{counted(len(jobs), 'job')} on {counted(found.gpus, 'GPU')} from offset {found.from_offset} on")
    both = (("", found.policy, found.other), *_summary(found))
    show(
        [{"what": what, "own": own, "other": other} for what, own, other in both[1:]],
        (
            Column("SIMULATED", lambda row: row["what"]),
            Column(found.policy, lambda row: row["own"]),
            Column(found.other, lambda row: row["other"]),
        ),
        Form.TABLE,
    )
    later = [_later_s(job) for job in jobs]
    earlier, after = sum(s < -SAME_S for s in later), sum(s > SAME_S for s in later)
    typer.echo(
        f"under {found.other}, {counted(earlier, 'job')} {plural(earlier, 'ends', 'end')} earlier, {after} later, "
        f"{len(jobs) - earlier - after} at the same time"
    )
    if earlier or after:
        rows = [_row(job) for job in jobs[:SHOWN] if abs(_later_s(job)) > SAME_S]
        show(rows, _columns(found), Form.TABLE)
        if earlier + after > len(rows):
            typer.echo(f"and {earlier + after - len(rows)} more: --json has all")
    for words, names in (
        ("left out, because they held no GPUs and it is not known how long they run", found.unknown),
        ("not ended on the log, and played as if they had with its end", found.unfinished),
    ):
        if names:
            few = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
            typer.echo(f"{counted(len(names), 'job')} {words}: {few}")


def _summary(found: WhatIf) -> list[tuple[str, str, str]]:
    """(what, under the recorded policy, under the other)."""
    jobs = found.jobs
    return [
        ("mean wait", _mean([j.wait_s for j in jobs]), _mean([j.other_wait_s for j in jobs])),
        ("longest wait", _most([j.wait_s for j in jobs]), _most([j.other_wait_s for j in jobs])),
        ("mean completion", _mean([j.finish_s for j in jobs]), _mean([j.other_finish_s for j in jobs])),
        ("all have ended after", clock(found.makespan_s[0]), clock(found.makespan_s[1])),
        ("preemptions", str(found.preemptions[0]), str(found.preemptions[1])),
    ]


def _mean(times: list[float | None]) -> str:
    known = [time_s for time_s in times if time_s is not None]
    return clock(fmean(known)) if known else "–"


def _most(times: list[float | None]) -> str:
    return clock(max((time_s for time_s in times if time_s is not None), default=None))


def _later_s(job: Comparison) -> float:
    return (job.other_finish_s or 0.0) - (job.finish_s or 0.0)


def _row(job: Comparison) -> Row:
    later_s = _later_s(job)
    return {
        "id": job.job_id,
        "name": job.name,
        "tenant": job.tenant,
        "gpus": str(job.gpus),
        "recorded": clock(job.recorded_wait_s),
        "wait": clock(job.wait_s),
        "other": clock(job.other_wait_s),
        "ends": f"{clock(abs(later_s))} {'later' if later_s > 0 else 'earlier'}",
    }


def _columns(found: WhatIf) -> tuple[Column, ...]:
    return (
        Column("ID", lambda row: row["id"]),
        Column("NAME", lambda row: row["name"]),
        Column("TENANT", lambda row: row["tenant"]),
        Column("GPUS", lambda row: row["gpus"]),
        Column("WAITED (LOG)", lambda row: row["recorded"]),
        Column(f"WAITS ({found.policy})", lambda row: row["wait"]),
        Column(f"WAITS ({found.other})", lambda row: row["other"]),
        Column("ENDS", lambda row: row["ends"]),
    )
