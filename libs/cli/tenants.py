"""Tenants: what each is guaranteed, may use at most, has, lends and waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from libs.cli.context import USAGE, Gateway, client, fail
from libs.cli.listing import AsJson, Limit, NoHeaders, Output, Sort, Watch, asked, listed
from libs.cli.output import Column, Form
from libs.contracts.gateway import ANY_TYPE

NONE = "none"
"""On the command line: no limit, no guarantee, no parent."""


class OnAlarm(StrEnum):
    """What is done about a job that does not get on."""

    TELL = "tell"
    STOP = "stop"
    REQUEUE = "requeue"


TENANTS = (
    Column("NAME", lambda t: f"{'  ' * t['depth']}{t['name']}"),
    Column("GUARANTEED", lambda t: per_type(t["guarantees"]) or str(t["guaranteed_gpus"] or "–")),
    Column("LIMIT", lambda t: _limit(t)),
    Column("USED", lambda t: str(t["granted_gpus"])),
    Column("HELD", lambda t: str(t["held_gpus"])),
    Column("LENT", lambda t: str(t["lent_gpus"])),
    Column("BORROWED", lambda t: str(t["borrowed_gpus"])),
    Column("WAITING", lambda t: str(t["waiting_gpus"])),
    Column("OWED", lambda t: str(t["owed_gpus"])),
    Column("WEIGHT", lambda t: f"{t['weight']:g}", wide=True),
    Column("PER USER", lambda t: per_type(t["per_user"]), wide=True),
    Column("LENDS", lambda t: "yes" if t["lend"] else "no", wide=True),
    Column("BORROWS", lambda t: "yes" if t["borrow"] else "no", wide=True),
    Column("STALL / DIVERGENCE / IDLE", lambda t: f"{t['on_stall']} / {t['on_divergence']} / {t['on_idle']}"),
    Column("JOBS", lambda t: ", ".join(f"{n} {state}" for state, n in t["jobs"].items())),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(tenants)
    tenant = typer.Typer(help="Shares and limits of tenants.", no_args_is_help=True, rich_markup_mode=None)
    tenant.command("set")(set_tenant)
    app.add_typer(tenant, name="tenant")


def tenants(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    sort: Sort = None,
    limit: Limit = None,
    watch: Watch = False,
    gateway: Gateway = None,
) -> None:
    """List tenants as a tree: GPUs guaranteed, used, lent, borrowed, waited for, and owed within guarantees."""
    with client(gateway) as cell:
        listed(lambda: as_tree(cell.tenants()), TENANTS, asked(output, as_json, no_headers, sort, limit, watch))


def as_tree(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tenants, each behind the one above it, with their `depth` in the tree."""
    names = [tenant["name"] for tenant in found]

    def below(parent: str, depth: int) -> Iterator[dict[str, Any]]:
        for tenant in found:
            above = tenant.get("parent", "")
            if above == parent or (not depth and above not in names):
                yield tenant | {"depth": depth}
                yield from below(tenant["name"], depth + 1)

    return list(below("", 0))


def set_tenant(
    name: Annotated[str, typer.Argument(help="Name of the tenant; made if it is new.")],
    quota: Annotated[str | None, typer.Option(help="Most GPUs together, or `none`.")] = None,
    guarantee: Annotated[
        list[str] | None,
        typer.Option(help="GPUs that are its own when it needs them: v100=32, 32 of any type, or `none`."),
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="Most GPUs together: v100=96, 96 as --quota, or `none`.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Its part of what can be borrowed, beside tenants of weight 1.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="The tenant that this one's share is a part of, or `none`.")
    ] = None,
    per_user: Annotated[
        list[str] | None, typer.Option(help="Most GPUs of the jobs of one user: v100=16, 16 of any type, or `none`.")
    ] = None,
    lend: Annotated[
        bool | None, typer.Option("--lend/--no-lend", help="Others may use what it does not use of its guarantee.")
    ] = None,
    borrow: Annotated[
        bool | None, typer.Option("--borrow/--no-borrow", help="It may use more than its guarantee.")
    ] = None,
    on_stall: Annotated[OnAlarm | None, typer.Option(help="What is done about a job that hangs.")] = None,
    on_divergence: Annotated[
        OnAlarm | None, typer.Option(help="The same about one with a loss of NaN or infinity.")
    ] = None,
    on_idle: Annotated[OnAlarm | None, typer.Option(help="The same about one that leaves its GPUs idle.")] = None,
    gateway: Gateway = None,
) -> None:
    """Set a tenant's share and limits, and what is done about its jobs that do not get on; what is left out stays.

    `tell` says so and does nothing, `stop` ends the job as failed, `requeue` starts it anew, from its checkpoint where
    it has one.
    """
    if quota not in (None, NONE) and not str(quota).isdigit():
        fail(f"--quota {quota!r}: expected a number of GPUs, or none", USAGE)
    guarantees, limits = gpus_per_type("--guarantee", guarantee), gpus_per_type("--limit", limit)
    of_user = gpus_per_type("--per-user", per_user)
    with client(gateway) as cell:
        fresh: dict[str, Any] = {"gpu_limit": None, "weight": 1.0}
        now = next((tenant for tenant in cell.tenants() if tenant["name"] == name), fresh)
        total = now["gpu_limit"] if quota is None else None if quota == NONE else int(quota)
        if limits is not None:
            total = limits.pop(ANY_TYPE, total if limits or quota is not None else None)
        share = {
            "parent": None if parent is None else "" if parent == NONE else parent,
            "guarantees": guarantees,
            "limits": limits,
            "per_user": of_user,
            "lend": lend,
            "borrow": borrow,
        }
        changed = {field: value for field, value in share.items() if value is not None}
        kept = {field: now[field] for field in share if field not in changed and field in now}
        responses = {"on_stall": on_stall, "on_divergence": on_divergence, "on_idle": on_idle}
        cell.set_tenant(name, total, now["weight"] if weight is None else weight, **kept, **changed, **responses)
        said = [f"{field.replace('_', ' ')} {_shown(value)}" for field, value in changed.items()]
        said += [f"{option.replace('_', '-')} {word.value}" for option, word in responses.items() if word is not None]
        typer.echo(f"tenant {name}: " + ", ".join([f"limit {'none' if total is None else total}", *said]))


def gpus_per_type(option: str, values: list[str] | None) -> dict[str, int] | None:
    """`v100=32`, several of them, `32` for GPUs of any type, `none`; None: the option was left out."""
    if values is None or values == [NONE]:
        return None if values is None else {}
    found: dict[str, int] = {}
    for value in values:
        gpu_type, _, number = value.rpartition("=")
        if not (number.isascii() and number.isdigit()):
            fail(f"{option} {value!r}: expected a whole number of GPUs, as v100=32 or 32, or none", USAGE)
        if (gpu_type or ANY_TYPE) in found:
            fail(f"{option} {value!r}: the GPU type is there twice", USAGE)
        found[gpu_type or ANY_TYPE] = int(number)
    return found


def per_type(gpus: Mapping[str, int]) -> str:
    """`v100=32,k80=8`; GPUs of any type are a number alone."""
    return ",".join(str(number) if name == ANY_TYPE else f"{name}={number}" for name, number in gpus.items())


def _limit(tenant: Mapping[str, Any]) -> str:
    limits = {} if tenant["gpu_limit"] is None else {ANY_TYPE: tenant["gpu_limit"]}
    return per_type(limits | tenant["limits"]) or NONE


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return per_type(value) or NONE
    return str({True: "yes", False: "no", "": NONE}.get(value, value))
