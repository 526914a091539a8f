"""`config` and `context`: which cell is meant, and where that is set."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from libs.cli.config import CONFIG, DEFAULTS, choose_context, chosen_context, configured, configured_token, contexts
from libs.cli.context import NOT_FOUND, Gateway, fail
from libs.cli.listing import AsJson, NoHeaders, Output, nearest
from libs.cli.output import Column, Form, show

CONTEXTS = (
    Column("", lambda c: "*" if c["used"] else ""),
    Column("NAME", lambda c: c["name"]),
    Column("GATEWAY", lambda c: c["gateway"]),
    Column("TOKEN", lambda c: "set" if c["token"] else "–"),
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    config = typer.Typer(help="Where values come from.", no_args_is_help=True, rich_markup_mode=None)
    config.command("show")(show_config)
    context = typer.Typer(help="Named cells.", no_args_is_help=True, rich_markup_mode=None)
    context.command("list")(list_contexts)
    context.command("use")(use_context)
    app.add_typer(config, name="config")
    app.add_typer(context, name="context")


def show_config(
    origin: Annotated[bool, typer.Option("--origin", help="Also where each value comes from.")] = False,
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
    gateway: Gateway = None,
) -> None:
    """The configuration; a token is never shown."""
    rows: list[dict[str, Any]] = []
    url = configured("gateway", gateway).value
    for name in DEFAULTS:
        found = configured_token(url) if name == "token" else configured(name, gateway if name == "gateway" else None)
        shown = "(set)" if name == "token" and found.value else found.value
        rows.append({"name": name, "value": shown, "origin": found.origin})
    columns = [Column("NAME", lambda r: r["name"]), Column("VALUE", lambda r: r["value"])]
    if origin:
        columns.append(Column("ORIGIN", lambda r: r["origin"]))
    show(rows, columns, Form.JSON if as_json else output, headers=not no_headers)


def list_contexts(
    output: Output = Form.TABLE,
    as_json: AsJson = False,
    no_headers: NoHeaders = False,
) -> None:
    """The contexts of the user's file."""
    used = chosen_context()
    rows = [
        {
            "name": name,
            "used": name == used,
            "gateway": str(values.get("gateway", "")),
            "token": bool(values.get("token")),
        }
        for name, values in contexts().items()
    ]
    show(rows, CONTEXTS, Form.JSON if as_json else output, headers=not no_headers)


def use_context(name: Annotated[str, typer.Argument(help="[contexts.NAME] of the user's file.")]) -> None:
    """Talk to another cell from now on."""
    known = contexts()
    if name not in known:
        near = nearest(name, known)
        meant = f" (did you mean {near!r}?)" if near else ""
        fail(f"{CONFIG} has no context {name!r}{meant}", NOT_FOUND, "sanjaya context list")
    choose_context(name)
    typer.echo(f"{name}: {known[name].get('gateway', DEFAULTS['gateway'])}")
