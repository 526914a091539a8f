"""Nodes, GPUs, policy, settings, events."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer

from libs.cli.context import USAGE, Gateway, client, fail
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Sort, Watch, asked, listed
from libs.cli.output import Column, Form, show_document
from libs.cli.policy_options import Guests, HeterogeneityAgnostic, SpaceSharing, WaterFilling
from libs.cli.references import completions, id_of
from libs.kernel.words import bytes_of, off_by

Node = Annotated[str, typer.Argument(help="Name of the node, as `sanjaya nodes` lists it.")]


NODES = (
    Column("ID", lambda n: n["id"]),
    Column("STATE", lambda n: n["state"]),
    Column("GPUS", lambda n: f"{n['gpus'] - n['free']}/{n['gpus']} {','.join(n['gpu_types'])}"),
    Column("JOBS", lambda n: ", ".join(n["jobs"])),
    Column("RACK", lambda n: n["rack"]),
    Column("POOL", lambda n: n.get("pool", "")),
    Column("CPUS", lambda n: f"{n['cpus_promised']}/{n['cpus']}"),
    Column("MEM", lambda n: f"{n['memory_promised_bytes'] / 2**30:.0f}/{n['memory_bytes'] / 2**30:.0f} GiB"),
    Column("HOST USES", lambda n: host_use(n)),
    Column("BOUNDS", lambda n: n["bounds_by"], wide=True),
    Column("HAS", lambda n: ", ".join(n["features"]), wide=True),
    Column("ADDRESS", lambda n: n["address"], wide=True),
    Column("INCARNATION", lambda n: str(n["incarnation"]), wide=True),
    Column("NOTE", lambda n: note_of(n)),
)
GPUS = (
    Column("ID", lambda g: g["id"]),
    Column("TYPE", lambda g: g["gpu_type"]),
    Column("MEMORY", lambda g: f"{g['memory_bytes'] / 2**30:.0f} GiB"),
    Column("STATE", lambda g: g["state"]),
    Column("JOBS", lambda g: ", ".join(g["jobs"])),
    Column("GUESTS", lambda g: ", ".join(g["guests"])),
    Column("LOAD", lambda g: "" if g["load_ratio"] is None else f"{g['load_ratio']:.0%}"),
    Column("TENANT", lambda g: g["tenant"] or ""),
    Column("CPUS", lambda g: str(g["cpus"] or ""), wide=True),
    Column("HOST MEM", lambda g: bytes_of(g["host_memory_bytes"]) if g["host_memory_bytes"] else "", wide=True),
    Column("UUID", lambda g: g["uuid"], wide=True),
    Column("NOTE", lambda g: g["note"]),
)
SETTINGS = (
    Column("SERVICE", lambda s: s["service"]),
    Column("NAME", lambda s: s["name"]),
    Column("VALUE", lambda s: f"{s['value']:g}"),
    Column("DEFAULT", lambda s: f"{s['default']:g}"),
    Column("MEANING", lambda s: s["describes"]),
)


def note_of(node: dict[str, Any]) -> str:
    """The node's note, and how far its clock is from the log's where that is 2 s or more."""
    skew_s = node.get("clock_skew_s")
    return "; ".join(filter(None, (node["note"], f"its clock is {off_by(skew_s)}" if skew_s else "")))


def host_use(node: dict[str, Any]) -> str:
    """`12 % cpu, 3.1/62 GiB` of the last minute that was measured."""
    if node["cpu_utilisation_ratio"] is None:
        return "–"
    used, there = node["memory_used_bytes"] / 2**30, node["host_memory_bytes"] / 2**30
    return f"{node['cpu_utilisation_ratio']:.0%} cpu, {used:.1f}/{there:.0f} GiB"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    flat: list[Callable[..., None]] = [nodes, gpus, drain, undrain, repair_clock, events]
    for single in flat:
        app.command()(single)
    _group(app, "policy", "The placement policy.", show_policy, set_policy)
    _group(app, "settings", "Numbers that the services decide by.", show_settings, set_setting)


def _group(
    app: typer.Typer, name: str, help_text: str, show_it: Callable[..., None], set_it: Callable[..., None]
) -> None:
    """`NAME show` and `NAME set`; `NAME` alone shows, too."""
    group = typer.Typer(help=help_text, invoke_without_command=True, rich_markup_mode=None)

    def alone(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            show_it()

    group.callback(help=help_text)(alone)
    group.command("show")(show_it)
    group.command("set")(set_it)
    app.add_typer(group, name=name)


def nodes(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Limit = None,
    watch: Watch = False,
    gateway: Gateway = None,
) -> None:
    """List nodes."""
    with client(gateway) as cell:
        listed(cell.nodes, NODES, asked(output, as_json, no_headers, sort, limit, watch))


def gpus(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Limit = None,
    watch: Watch = False,
    gateway: Gateway = None,
) -> None:
    """List GPUs and the jobs that have them."""
    with client(gateway) as cell:
        listed(cell.gpus, GPUS, asked(output, as_json, no_headers, sort, limit, watch))


def drain(
    node: Node,
    reason: Annotated[str, typer.Option(help="Goes on the log, for users with waiting jobs.")],
    now: Annotated[
        bool, typer.Option("--now", help="Jobs that would start again from zero do so; else they run to their end.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until the node is empty.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    gateway: Gateway = None,
) -> None:
    """Move away what runs on a node, and give it nothing new. What becomes of each job is shown first."""
    from libs.cli import draining
    from libs.policies.table import POLICIES

    with client(gateway) as cell:
        jobs = draining.jobs_on(cell, node)
        moves_live = POLICIES[cell.policy()["policy"]].moves_live
        fates = [draining.fate(job, moves_live=moves_live, now=now) for job in jobs]
        draining.agreed(node, jobs, fates, yes=yes)
        asked_for = cell.drain(node, reason, now=now)
        typer.echo(f"{node} is drained: {reason}")
        if wait:
            draining.wait_until_empty(cell, node, asked_for["offset"])
            typer.echo(f"{node} is empty")


def undrain(node: Node, gateway: Gateway = None) -> None:
    """Use a node again."""
    with client(gateway) as cell:
        cell.undrain(node)
        typer.echo(f"{node} may be used again")


def repair_clock(
    reason: Annotated[str, typer.Option(help="Goes on the log.")],
    gateway: Gateway = None,
) -> None:
    """Have services whose decisions are dated in the future go back to the log's clock (`doctor` names the need)."""
    with client(gateway) as cell:
        ahead_s = cell.clock()["ahead_s"]
        cell.repair_clock(reason)
        typer.echo(f"the services go back by {timedelta(seconds=round(ahead_s))}, to the log's clock")


def show_policy(as_json: AsJson = False, gateway: Gateway = None) -> None:
    """The policy, and those that can be chosen."""
    with client(gateway) as cell:
        found = cell.policy()
    if as_json:
        show_document(found, Form.JSON)
    else:
        guests = "" if found["guests"] == "none" else f", guests {found['guests']}"
        typer.echo(f"{found['policy']}{guests}  (available: {', '.join(found['available'])})")


def set_policy(
    policy: Annotated[str, typer.Argument(help="One that `sanjaya policy show` lists.")],
    reason: Annotated[str, typer.Option(help="Goes on the log.")] = "",
    space_sharing: SpaceSharing = False,
    heterogeneity_agnostic: HeterogeneityAgnostic = False,
    water_filling: WaterFilling = False,
    guests: Guests = None,
    gateway: Gateway = None,
) -> None:
    """Switch the policy; it takes effect with the next decision."""
    with client(gateway) as cell:
        cell.set_policy(
            policy,
            reason,
            space_sharing=space_sharing,
            heterogeneity_aware=not heterogeneity_agnostic,
            water_filling=water_filling,
            **({} if guests is None else {"guests": guests}),
        )
        typer.echo(f"policy {policy}" + ("" if guests is None else f", guests {guests}"))


def show_settings(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    gateway: Gateway = None,
) -> None:
    """The settings and their values."""
    with client(gateway) as cell:
        listed(cell.settings, SETTINGS, asked(output, as_json, no_headers, sort, None))


def set_setting(
    name: Annotated[str, typer.Argument(help="SERVICE.NAME, as `sanjaya settings show` lists it.")],
    value: Annotated[float, typer.Argument(help="Its new value, a number.")],
    gateway: Gateway = None,
) -> None:
    """Change a setting; the change is an event."""
    service, dot, setting = name.partition(".")
    if not dot:
        fail(f"{name!r} is no setting", USAGE, "placement.reserve_after_s")
    with client(gateway) as cell:
        cell.set_setting(service, setting, value)
        typer.echo(f"{name} = {value:g}")


def events(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new events until Ctrl-C.")] = False,
    job: Annotated[
        list[str] | None, typer.Option(help="Of this job, by id, name or `last`; repeat.", autocompletion=completions)
    ] = None,
    kind: Annotated[list[str] | None, typer.Option("--type", help="Such as job.placed.v1; repeat.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Of this node; repeat.")] = None,
    from_offset: Annotated[
        int | None, typer.Option(min=0, help="From this one on. Default: the first; with -f: the next.")
    ] = None,
    as_json: AsJson = False,
    gateway: Gateway = None,
) -> None:
    """The control topic, oldest first."""
    with client(gateway) as cell:
        ids = [id_of(cell, one) for one in job or []]
        for event in cell.events(follow=follow, job=ids, type=kind, node=node, from_offset=from_offset):
            print(json.dumps(event) if as_json else _line(event), flush=True)


def _line(event: dict[str, Any]) -> str:
    data = event.get("data", {})
    reason = data.get("reason")
    why = f"  {reason['message']}" if isinstance(reason, dict) else ""
    return f"{event['offset']:>7}  {event['time'][11:23]}  {event['type']:<28} {event['subject']:<14}{why}"
