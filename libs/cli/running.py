"""Cells on this machine: `up`, `demo`, `agent`, and how they are: `doctor`, `version`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from libs.cli.config import configured
from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.client import Client, ClientError

StateDir = Annotated[Path | None, typer.Option("--state-dir", help="Log, read models, tasks; default ~/.sanjaya/CELL.")]
Bus = Annotated[str, typer.Option(help="embedded, or kafka (KAFKA_BOOTSTRAP_SERVERS, else a broker is started).")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (up, demo, doctor, version):
        app.command()(command)
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("agent", context_settings=passed_on)(agent)


def up(
    state_dir: StateDir = None,
    bus: Bus = "embedded",
    cell: Annotated[str, typer.Option()] = "local",
    agents: Annotated[int, typer.Option(min=0)] = 1,
    virtual_gpus: Annotated[int, typer.Option(min=0, help="Per agent; 0: this machine's real GPUs.")] = 4,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the gateway.")] = 8420,
) -> None:
    """Keep a cell running on this machine until Ctrl-C."""
    import signal

    from libs.cli.cell import Cell, CellError, CellPlan

    plan = CellPlan(
        state_dir=(state_dir or Path.home() / ".sanjaya" / cell).absolute(),
        cell=cell,
        kafka=kafka_servers(bus),
        agents=agents,
        gpus_per_agent=virtual_gpus,
        gateway_port=port,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Cell(plan, lambda text: typer.echo(text, err=True)) as running:
            typer.echo(f"{plan.gateway_url}   Ctrl-C ends it", err=True)
            running.wait()
    except CellError as error:
        fail(str(error), FAILED)


def demo(
    bus: Bus = "embedded",
    keep: Annotated[Path | None, typer.Option(help="Keep the state, with the log, in this directory.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Have every job that can succeed train so many steps: 20 is quick.")
    ] = None,
) -> None:
    """A whole cell, a dozen real training jobs, their story, and the audit."""
    from libs.cli.cell import CellError
    from libs.cli.demo import run

    try:
        sys.exit(run(kafka_servers(bus), keep, steps))
    except CellError as error:
        fail(str(error), FAILED)


def kafka_servers(bus: str) -> str | None:
    """None for the embedded log, the configured brokers, or an empty text for a broker of the cell's own."""
    if bus not in ("embedded", "kafka"):
        fail(f"--bus {bus!r}: expected embedded or kafka", USAGE)
    return None if bus == "embedded" else os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "")


def agent(context: typer.Context) -> None:
    """Join this machine's GPUs to a cell (`sanjaya agent --help` is the agent's own help)."""
    os.execv(sys.executable, [sys.executable, "-m", "torch_agent.service", *context.args])


def doctor(
    gateway: Gateway = None,
    bus: Annotated[
        str | None,
        typer.Option(
            "--bus", envvar="SANJAYA_BUS", help="kafka://…: also what its brokers and the cell's topics are set to."
        ),
    ] = None,
    cell: Annotated[str | None, typer.Option(help="The cell of the topics; default: the gateway's.")] = None,
) -> None:
    """Whether the cell and this machine are well, with a fix for each thing that is not."""
    from libs.bus.port import BusError
    from libs.cli.doctor import examine

    with client(gateway) as live:
        findings = examine(live)
        name = cell or cell_of(live)
    for finding in findings:
        typer.echo(f"{finding.mark:<5}{finding.what:<22} {finding.detail}")
        if not finding.ok:
            typer.echo(f"{'':<5}{'':<22} try: {finding.fix}")
    well = all(finding.ok or finding.optional for finding in findings)
    if bus is not None and bus.startswith("kafka:"):
        from libs.cli.broker import settings_of_kafka, show_settings

        try:
            compared = settings_of_kafka(bus, name)
        except BusError as error:
            fail(str(error), FAILED, "--bus kafka://host:port, as the services have it in SANJAYA_BUS")
        show_settings(compared)
        well = well and all(row.ok for row in compared)
    sys.exit(0 if well else FAILED)


def cell_of(live: Client) -> str:
    """The cell's name as its gateway has it; the configured one when the gateway is away."""
    try:
        return str(live.status()["cell"])
    except ClientError:
        return configured("cell").value


def version() -> None:
    """The installed version."""
    from importlib.metadata import version as installed

    typer.echo(installed("sanjaya-scheduler"))
