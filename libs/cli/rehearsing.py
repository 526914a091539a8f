"""`rehearse`: the code at hand, or another policy, tried on the recorded past before it meets a running cell."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libs.cli.audit import ArchiveDir, Cell, Source, opened
from libs.cli.context import DONE, FAILED, USAGE, Gateway, fail
from libs.cli.listing import AsJson, nearest
from libs.cli.output import Column, Form, show, show_document
from libs.cli.progress import progress
from libs.cli.writing import check_writable, write_text
from libs.kernel.words import counted, plural

if TYPE_CHECKING:
    from libs.contracts.base import Event
    from libs.contracts.gateway import PolicyChanged, SettingChanged
    from libs.inspect.rehearsal import Disagreement, Rehearsal, Span

SHOWN = 5
"""Differences that are printed."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rehearse)


def rehearse(
    log: Source = None,
    policy: Annotated[str | None, typer.Option(help="Decide as if this policy had been in force.")] = None,
    changed: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, e.g. placement.slice_s=30; may be repeated.")
    ] = None,
    begin: Annotated[str | None, typer.Option("--from", help="From this offset or time (RFC 3339) on.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="… and up to this one, exclusive.")] = None,
    html: Annotated[str | None, typer.Option("--html", help="Also a page with a time line, as this file.")] = None,
    as_json: AsJson = False,
    archive: ArchiveDir = None,
    cell: Cell = None,
    gateway: Gateway = None,
) -> None:
    """Decide again at every recorded state and compare: exit 1 when the code at hand decides otherwise."""
    from libs.inspect.rehearsal import rehearse as run
    from libs.inspect.rehearsal_page import page
    from libs.runtime.roster import roster

    changes, span = _changes(policy, changed or []), _span(begin, end)
    if html is not None:
        check_writable(html)
    with opened(log, cell, gateway, archive) as found, progress("rehearsing") as watch:
        result = run(found, roster().SERVICES, changes=changes, span=span, watch=lambda done: watch(done, None))
    if html is not None:
        write_text(page(result, f"Rehearsal{_described(policy, changed or [])}"), html)
    if as_json:
        import msgspec

        document = msgspec.to_builtins(result)
        del document["moments"]  # for the page's time line; one per input
        show_document(document, Form.JSON)
    else:
        _print(result)
    sys.exit(DONE if result.ok else FAILED)


def _described(policy: str | None, changed: list[str]) -> str:
    said = [*([f"policy {policy}"] if policy else []), *changed]
    return f" with {', '.join(said)}" if said else ""


def _changes(policy: str | None, changed: list[str]) -> list[Event]:
    changes: list[Event] = [setting_changed(text, "rehearsal") for text in changed]
    return changes if policy is None else [*changes, policy_named(policy, "rehearsal")]


def policy_named(policy: str, requested_by: str) -> PolicyChanged:
    """The change to this policy; ends the process with 2 when there is none of this name."""
    from libs.contracts.gateway import PolicyChanged
    from libs.policies.table import POLICIES, guests_with

    if policy not in POLICIES:
        near = nearest(policy, POLICIES)
        meant = f"did you mean {near!r}?" if near else f"expected one of {', '.join(POLICIES)}"
        fail(f"--policy {policy!r}: no such policy, {meant}", USAGE)
    return PolicyChanged(policy=policy, requested_by=requested_by, guests=guests_with(policy))


def setting_changed(text: str, requested_by: str) -> SettingChanged:
    """The change that `SERVICE.NAME=NUMBER` says; ends the process with 2 when it says none."""
    from libs.contracts.gateway import SettingChanged
    from libs.contracts.settings import SETTINGS

    name, given, value = text.partition("=")
    service, _, setting = name.partition(".")
    known = [f"{each.service}.{each.name}" for each in SETTINGS]
    if not given or name not in known:
        near = nearest(name, known)
        meant = f"did you mean {near!r}?" if near else f"expected SERVICE.NAME=NUMBER, NAMEs: {', '.join(known)}"
        fail(f"--set {text!r}: no such setting, {meant}", USAGE)
    try:
        return SettingChanged(service=service, name=setting, value=float(value), requested_by=requested_by)
    except ValueError:
        fail(f"--set {text!r}: {value!r} is no number", USAGE)


def _span(begin: str | None, end: str | None) -> Span:
    from libs.inspect.rehearsal import Span

    from_offset, from_s = _bound("--from", begin)
    to_offset, to_s = _bound("--to", end)
    return Span(from_offset=from_offset or 0, to_offset=to_offset, from_s=from_s, to_s=to_s)


def _bound(option: str, text: str | None) -> tuple[int | None, float | None]:
    """An offset, or a time in seconds since the epoch."""
    from libs.contracts.wire import parse_rfc3339

    if text is None:
        return None, None
    if text.isdecimal():
        return int(text), None
    try:
        moment = datetime.fromisoformat(text)
        return None, moment.timestamp() if moment.tzinfo is None else parse_rfc3339(text)
    except ValueError:
        fail(f"{option} {text!r}: expected an offset like 812, or a time like 2026-11-20T22:14:03Z", USAGE)


def _print(found: Rehearsal) -> None:
    orders = "" if found.orders_compared else " (the log was read without its orders)"
    inputs = f"{found.inputs:,} {plural(found.inputs, 'input')}"
    decisions = f"{found.decisions:,} recorded {plural(found.decisions, 'decision')}"
    differences = f"{found.differences:,} {plural(found.differences, 'difference')}"
    typer.echo(f"{inputs}, {decisions}, {differences}{orders}")
    for line in found.unhandled:
        typer.echo(line)
    if found.ok:
        return
    show(_rows(found), AGREEMENT, Form.TABLE, headers=True)
    for what, jobs in sorted(found.asked.items()):
        few = ", ".join(list(jobs)[:5]) + (" …" if len(jobs) > 5 else "")
        typer.echo(f"not recorded: {what} of {counted(len(jobs), 'job')} ({few})")
    for each in found.details[:SHOWN]:
        typer.echo("\n".join(_lines(each)))
    if found.differences > SHOWN:
        typer.echo(f"… and {found.differences - SHOWN:,} more (--json has the first 100, --html shows them)")


AGREEMENT = (
    Column("EVENT", lambda row: row["event"]),
    Column("RECORDED", lambda row: str(row["recorded"])),
    Column("REHEARSED", lambda row: str(row["rehearsed"])),
    Column("THE SAME", lambda row: str(row["same"])),
)


def _rows(found: Rehearsal) -> list[dict[str, Any]]:
    """Events about which the two do not always agree."""
    return [
        {"event": name, "recorded": each.recorded, "rehearsed": each.rehearsed, "same": each.same}
        for name, each in sorted(found.agreement.items())
        if each.same < max(each.recorded, each.rehearsed)
    ]


def _lines(each: Disagreement) -> list[str]:
    lines = [f"control/0@{each.offset}: {each.service}, on: {each.input}"]
    for label, answer in (("recorded", each.recorded), ("rehearsed", each.rehearsed)):
        if answer is None:
            lines.append(f"    {label:<9} nothing")
            continue
        lines.append(f"    {label:<9} {answer.event} of {answer.subject}: {answer.text}")
        if answer.reason:
            lines.append(f"              {answer.reason}")
    return lines
