"""Into a running job: `exec`, `shell`, `forward`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from libs.cli import terminal
from libs.cli.context import FAILED, USAGE, Gateway, client, fail
from libs.cli.following import tell
from libs.cli.references import Job, resolve
from libs.contracts.bad_input import BadInput
from libs.contracts.sessions import (
    CHUNK_BYTES,
    STDERR,
    STDOUT,
    EndOfInput,
    Exited,
    Notice,
    Opened,
    Resize,
    Signal,
    SignalName,
    Start,
    Terminal,
)

if TYPE_CHECKING:
    from libs.client import Client
    from libs.client.sessions import Session

T = TypeVar("T")

Rank = Annotated[int, typer.Option(min=0, help="Of a gang: beside this rank, on its node.")]

STDIN_FD, STDOUT_FD, STDERR_FD = 0, 1, 2
BY_SIGNAL = 128
"""Added to the number of a signal, as shells do."""
PASSED_ON: dict[int, SignalName] = {
    signal.SIGINT: "INT",
    signal.SIGQUIT: "QUIT",
    signal.SIGUSR1: "USR1",
    signal.SIGUSR2: "USR2",
}
LEAVING = (signal.SIGTERM, signal.SIGHUP)
"""End the session, and by that what runs in it."""


class Left(Exception):
    """A signal has ended the session."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("exec")(execute)
    app.command()(shell)
    app.command()(forward)


def execute(
    job: Job,
    command: Annotated[list[str], typer.Argument(help="What is run there: words behind `--`.", metavar="COMMAND...")],
    rank: Rank = 0,
    gateway: Gateway = None,
) -> None:
    """Run a command inside a running job: `sanjaya exec JOB -- nvidia-smi`.

    It has the environment, directory and GPUs of the job's task and this command's input, output and exit code. Ctrl-C
    is passed on. It ends with the job's processes there, and stands still while they are suspended.
    """
    with client(gateway) as cell:
        sys.exit(_status(_run(_inside(cell, resolve(cell, job), rank, Start(command=command)))))


def shell(
    job: Job,
    command: Annotated[
        list[str] | None, typer.Argument(help="Instead of your shell: words behind `--`.", metavar="[COMMAND]...")
    ] = None,
    rank: Rank = 0,
    gateway: Gateway = None,
) -> None:
    """Open a terminal inside a running job: `sanjaya shell JOB`. It ends with its shell, or with the job."""
    if not (os.isatty(STDIN_FD) and os.isatty(STDOUT_FD)):
        fail("shell needs a terminal on its input and its output", USAGE, f"sanjaya exec {job} -- COMMAND")
    rows, columns = terminal.size(STDOUT_FD)
    term = os.environ.get("TERM") or "xterm"
    start = Start(command=command or [], terminal=Terminal(rows=rows, columns=columns, term=term))
    with client(gateway) as cell:
        sys.exit(_status(_run(_inside(cell, resolve(cell, job), rank, start))))


def forward(
    job: Job,
    port: Annotated[str, typer.Argument(help="Port of the job's node; behind a colon, of this machine (0: any).")],
    rank: Rank = 0,
    gateway: Gateway = None,
) -> None:
    """Reach a port of a running job's node from here, until Ctrl-C: `sanjaya forward JOB 6006`.

    `sanjaya forward JOB 8888:9999` has it at 127.0.0.1:9999. For TensorBoard, Jupyter and the like.
    """
    remote, local = ports(port)
    with client(gateway) as cell:

        def on_open(opened: Opened, own: int) -> None:
            tell(f"forwarding to port {remote} of {opened.node_id}, where {opened.name} runs, until Ctrl-C")
            print(f"http://127.0.0.1:{own}", flush=True)

        try:
            over = forwarded(cell, resolve(cell, job), remote, local, on_open, rank=rank)
        except OSError as error:
            fail(f"port {local} of this machine: {error.strerror or error}", USAGE, f"sanjaya forward {job} {remote}:0")
        if over is not None:
            fail(f"the forward is over: {over}", FAILED)


def forwarded(
    cell: Client, job: str, remote: int, local: int, on_open: Callable[[Opened, int], None], *, rank: int = 0
) -> str | None:
    """Forward a port until a signal ends that, or the job's end does.

    Args:
        on_open: gets the answer of the gateway and the port of this machine once it is open.

    Returns:
        Why it is over; None when a signal has ended it.

    Raises:
        OSError: the port of this machine cannot be had.
    """
    from libs.client.sessions import Forwarding  # loaded only where there is a session

    forwarding = Forwarding(cell, job, remote, local, rank=rank, on_open=on_open, on_notice=lambda text: tell(text))
    try:
        return _run(_until_left(forwarding.run(), (signal.SIGINT, *LEAVING)))
    except Left:
        return None


def ports(text: str) -> tuple[int, int]:
    """The port of the node and that of this machine.

    Raises:
        BadInput: they are none.
    """
    remote, colon, local = text.partition(":")
    if not _is_port(remote, 1) or (colon and not _is_port(local, 0)):
        raise BadInput("PORT", repr(text), "a port from 1 to 65535, such as 6006, or PORT:LOCAL, such as 6006:16006")
    return int(remote), int(local) if colon else int(remote)


def _is_port(text: str, least: int) -> bool:
    return text.isascii() and text.isdecimal() and least <= int(text) < 65536


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _status(ended: Exited | int) -> int:
    """The exit code of this command; why it has ended is said, unless by the end of the command there."""
    if isinstance(ended, int):
        return ended
    if ended.note:
        typer.echo(f"error: {ended.note}", err=True)
    if ended.exit_code is not None:
        return ended.exit_code
    return BY_SIGNAL + ended.signal if ended.signal is not None else FAILED


async def _inside(cell: Any, job: str, rank: int, start: Start) -> Exited | int:
    """One command or terminal, to its end. Returns how that has ended, or the exit code when a signal has ended us."""
    from libs.client.errors import Unreachable
    from libs.client.sessions import exec_path, opened

    with ExitStack() as restoring:
        async with opened(cell, exec_path(job), rank=rank, answers=start.terminal is not None) as session:
            await session.send(start)

            async def shown() -> Exited:
                async for message in session:
                    if isinstance(message, bytes):
                        await asyncio.to_thread(_write, message[0], message[1:])
                    elif isinstance(message, Opened):
                        _begin(session, message, start, restoring)
                    elif isinstance(message, Notice):
                        line = f"{message.text}\n" if start.terminal is None else f"\r\n{message.text}\r\n"
                        await asyncio.to_thread(_write, STDERR, line.encode())
                    elif isinstance(message, Exited):
                        return message
                raise Unreachable(f"the gateway at {cell.base_url} broke off")

            try:
                return await _until_left(shown(), LEAVING)
            except Left as left:
                return BY_SIGNAL + left.number


def _begin(session: Session, opened: Opened, start: Start, restoring: ExitStack) -> None:
    """From here on keys, signals and sizes go to the job."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def send(message: Resize | Signal) -> None:
        tasks.add(task := loop.create_task(session.send(message)))
        task.add_done_callback(tasks.discard)

    def resize() -> None:
        rows, columns = terminal.size(STDOUT_FD)
        send(Resize(rows=rows, columns=columns))

    if start.terminal is not None:
        loop.add_signal_handler(signal.SIGWINCH, resize)
        title = f"{opened.name} ({opened.job_id}) on {opened.node_id}"
        restoring.enter_context(terminal.raw(STDIN_FD, STDOUT_FD, title))
    else:
        for number, name in PASSED_ON.items():
            loop.add_signal_handler(number, send, Signal(name=name))
    threading.Thread(target=_read, args=(session, loop), name="input", daemon=True).start()


def _read(session: Session, loop: asyncio.AbstractEventLoop) -> None:
    """Our input, piece by piece, as fast as it is taken. The loop may end at any time."""
    with suppress(RuntimeError, OSError, asyncio.CancelledError):
        while data := os.read(STDIN_FD, CHUNK_BYTES):
            asyncio.run_coroutine_threadsafe(session.send_bytes(data), loop).result()
        asyncio.run_coroutine_threadsafe(session.send(EndOfInput()), loop).result()


def _write(channel: int, data: bytes) -> None:
    descriptor = STDERR_FD if channel == STDERR else STDOUT_FD
    assert channel in (STDOUT, STDERR), channel
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


async def _until_left(work: Coroutine[Any, Any, T], numbers: tuple[int, ...]) -> T:
    """The work's result.

    Raises:
        Left: one of these signals came first.
    """
    loop = asyncio.get_running_loop()
    left: asyncio.Future[T] = loop.create_future()

    def leave(number: int) -> None:
        if not left.done():
            left.set_exception(Left(number))

    for number in numbers:
        loop.add_signal_handler(number, leave, number)
    working = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((working, left), return_when=asyncio.FIRST_COMPLETED)
        return (working if working in done else left).result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        left.cancel()
