"""Cells on this machine: `up`, `down`, `demo`, `agent`, and how they are: `doctor`, `version`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from libs.cli.config import configured
from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.cli.installation import DEMONSTRATION, command_to_add, has, program
from libs.client import Client, ClientError
from libs.kernel.words import counted

if TYPE_CHECKING:
    from libs.cli.cell import Cell, CellPlan

StateDir = Annotated[Path | None, typer.Option("--state-dir", help="Log, read models, tasks; default ~/.sanjaya/CELL.")]
CellName = Annotated[str, typer.Option(help="Name of the cell.")]
Bus = Annotated[str, typer.Option(help="embedded, or kafka (KAFKA_BOOTSTRAP_SERVERS, else a broker is started).")]
NoAuth = Annotated[
    bool, typer.Option("--no-auth", help="Without tokens: every user of this machine may do everything.")
]

ENDS_WITHIN_S = 60.0
"""What `down` waits for a cell: its agents, services and broker have up to 35, 10 and 10 s."""


class OnExit(StrEnum):
    """What becomes of running tasks when the cell ends."""

    KEEP = "keep"
    REQUEUE = "requeue"


class EndAsked(BaseException):
    """Ctrl-C, or a service manager's signal."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (up, down, demo, page, doctor, version):
        app.command()(command)
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("agent", context_settings=passed_on)(agent)


def up(
    state_dir: StateDir = None,
    bus: Bus = "embedded",
    cell: CellName = "local",
    agents: Annotated[int, typer.Option(min=0, help="Started on this machine; 0: others join later.")] = 1,
    virtual_gpus: Annotated[int, typer.Option(min=0, help="CPU slots per agent; 0: this machine's real GPUs.")] = 4,
    pin_virtual_gpus: Annotated[
        bool | None,
        typer.Option(help="A CPU for each virtual GPU, which guests need (default: if there are as many CPUs)."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the gateway.")] = 8420,
    host: Annotated[
        str, typer.Option(help="Address of this machine where agents of others join, by TLS and a token.")
    ] = "",
    on_exit: Annotated[
        OnExit,
        typer.Option(help="Running tasks wait for the next start, or save what they can and requeue."),
    ] = OnExit.KEEP,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="Tokens of other users, in a YAML file.", envvar="SANJAYA_TOKENS_FILE", exists=True, dir_okay=False
        ),
    ] = None,
    no_auth: NoAuth = False,
) -> None:
    """Keep a cell running on this machine until Ctrl-C. Running jobs lose nothing by that (--on-exit)."""
    from libs.cli.cell import Cell, CellError, CellPlan
    from libs.cli.cell.left import left_in

    if tokens is not None and no_auth:
        fail("--no-auth with --tokens (or SANJAYA_TOKENS_FILE): expected one of them", USAGE)
    plan = CellPlan(
        state_dir=state_dir_of(state_dir, cell),
        cell=cell,
        kafka=kafka_servers(bus),
        agents=agents,
        gpus_per_agent=virtual_gpus,
        pin_virtual_gpus=pin_virtual_gpus,
        gateway_port=port,
        host=host,
        on_exit=on_exit.value,
        auth=not no_auth,
        tokens_file=tokens.absolute() if tokens is not None else None,
    )
    if plan.host and plan.kafka is not None:
        fail("--host is for the embedded log", USAGE, "sanjaya agent --bus kafka://HOST:PORT on the other machine")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_asked)
    try:
        with Cell(plan, say) as running:
            if plan.joining is not None:
                say(f"another machine joins by:  {plan.joining.command()}")
            say_where(running)
            running.wait()
    except CellError as error:
        fail(str(error), FAILED)
    except EndAsked:
        show_left(left_in(plan.state_dir), plan)


def say_where(running: Cell) -> None:
    """Where the cell is. The link with its code is for a person, and not for a log."""
    from libs.cli.cell import CellError

    if sys.stderr.isatty():
        try:
            say(f"page, for one browser: {running.page_link()}   (sanjaya page prints another link)")
        except OSError as error:
            raise CellError(f"the gateway gives no link to the page: {error}") from None
    say(f"{running.plan.gateway_url}   Ctrl-C ends it")


def page(gateway: Gateway = None) -> None:
    """A link to the page of the cell: it lets one browser in, once, with the rights of the token used here."""
    with client(gateway) as live:
        typer.echo(f"{live.base_url.rstrip('/')}{live.browser_login()['path']}")


def down(state_dir: StateDir = None, cell: CellName = "local") -> None:
    """End the cell of a state directory, and the tasks that it has left running; its jobs are queued again by `up`."""
    from libs.cli.cell import CellError
    from libs.cli.cell.left import left_in
    from libs.cli.cell.lock import end_holder

    folder = state_dir_of(state_dir, cell)
    try:
        if end_holder(folder, ENDS_WITHIN_S):
            say(f"the cell in {folder} has ended")
        ended = left_in(folder, end=True)
    except CellError as error:
        fail(str(error), FAILED)
    show_tasks(ended)
    if ended:
        say("these have saved what they can and have ended; their jobs are queued again by the next start")
    else:
        say("no task was running")
    say(f"to go on:  sanjaya up --state-dir {shlex.quote(str(folder))}")


def say(text: str) -> None:
    """What is no result goes to stderr."""
    typer.echo(text, err=True)


def state_dir_of(given: Path | None, cell: str) -> Path:
    """The state directory of a cell on this machine."""
    return (given or Path.home() / ".sanjaya" / cell).absolute()


def end_asked(*_: object) -> NoReturn:
    """To be asked once is enough: the end takes a bounded time, and cut short it would leave more than tasks."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise EndAsked


def show_left(tasks: Sequence[dict[str, Any]], plan: CellPlan) -> None:
    """Say what is left without the cell, and how to get it back."""
    if tasks:
        wait, stand = ("waits", "it stands") if len(tasks) == 1 else ("wait", "they stand")
        say(f"{counted(len(tasks), 'task')} {wait} for the next start; {stand} still when the node's lease runs out:")
        show_tasks(tasks)
        say(f"to end what waits:  sanjaya down --state-dir {shlex.quote(str(plan.state_dir))}")
    else:
        say("no task was left running")
    say(f"to go on:  {command_again(plan)}")


def show_tasks(tasks: Sequence[dict[str, Any]]) -> None:
    """One line each."""
    from libs.cli.output import table

    if tasks:
        table([_cells(task) for task in tasks], ["JOB", "NAME", "NODE", "GPUS", "PIDS", "STATE"])


def _cells(task: dict[str, Any]) -> list[str]:
    gpus, pids = (",".join(map(str, task[field])) for field in ("gpus", "pids"))
    return [task["job_id"], task["name"], task["node_id"], gpus, pids, task["status"].upper()]


def command_again(plan: CellPlan) -> str:
    """The command that starts the same cell: what differs from a plain `sanjaya up`."""
    usual = type(plan)(state_dir=plan.state_dir)
    options = {
        "--cell": (plan.cell, usual.cell),
        "--bus": ("embedded" if plan.kafka is None else "kafka", "embedded"),
        "--agents": (plan.agents, usual.agents),
        "--virtual-gpus": (plan.gpus_per_agent, usual.gpus_per_agent),
        "--port": (plan.gateway_port, usual.gateway_port),
        "--host": (plan.host, usual.host),
        "--on-exit": (plan.on_exit, OnExit.KEEP.value),
        "--tokens": (plan.tokens_file, None),
    }
    words = ["sanjaya", "up", "--state-dir", str(plan.state_dir), *(() if plan.auth else ("--no-auth",))]
    for name, (given, default) in options.items():
        if given != default:
            words += [name, str(given)]
    return shlex.join(words)


def demo(
    bus: Bus = "embedded",
    keep: Annotated[Path | None, typer.Option(help="Keep the state, with the log, in this directory.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Have every job that can succeed train so many steps: 20 is quick.")
    ] = None,
    no_auth: NoAuth = False,
) -> None:
    """A whole cell, a dozen real training jobs, their story, and the audit."""
    from libs.cli.cell import CellError
    from libs.cli.demo import run

    if missing := [requirement for module, requirement in DEMONSTRATION.items() if not has(module)]:
        what = f"the demonstration trains real models, for which this installation lacks {' and '.join(missing)}"
        fail(what, FAILED, command_to_add(*missing))
    try:
        sys.exit(run(kafka_servers(bus), keep, steps, auth=not no_auth))
    except CellError as error:
        fail(str(error), FAILED)


def kafka_servers(bus: str) -> str | None:
    """None for the embedded log, the configured brokers, or an empty text for a broker of the cell's own."""
    if bus not in ("embedded", "kafka"):
        fail(f"--bus {bus!r}: expected embedded or kafka", USAGE)
    return None if bus == "embedded" else os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "")


def agent(context: typer.Context) -> None:
    """Join this machine's GPUs to a cell (`sanjaya agent --help` is the agent's own help)."""
    command = program("torch_agent.service", *context.args)
    os.execv(command[0], command)


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
