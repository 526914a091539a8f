"""A private PostgreSQL for tests. Name this module in `pytest_plugins` to have the fixtures."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from libs.bus.local_broker.network import free_port

_START_S = 200
_PR_SET_PDEATHSIG = 1


class PostgresMissing(Exception):
    """There is no PostgreSQL on this machine, or it cannot be started; the message says what was tried."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """SQLAlchemy URL of a server: `SANJAYA_TEST_POSTGRES` if set, else one that is started for the session.

    A server that cannot be started is an error and never a skip: a run without PostgreSQL would look like a
    run that passed.
    """
    if url := os.environ.get("SANJAYA_TEST_POSTGRES"):
        yield url
        return
    with running_postgres() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """SQLAlchemy URL of an empty database of the test's own, dropped afterwards."""
    name = f"sanjaya_{uuid.uuid4().hex[:12]}"
    server = make_url(postgres_server)
    connect_to = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(connect_to, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield server.set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def running_postgres() -> Iterator[str]:
    """Start a server in a folder of its own on a free port of the loopback; stop and remove it at the end.

    PostgreSQL refuses to run as root: then it runs as `postgres`, or else as `nobody`.

    Raises:
        PostgresMissing: no programs were found, or they failed; their output is in the message.
    """
    programs = find_programs()
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="sanjaya-postgres-"))
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data, port = folder / "data", free_port()
        _initialise(programs, data, user)
        server = _start(programs, data, port, user)
        try:
            url = f"postgresql://sanjaya@127.0.0.1:{port}/postgres"
            _wait_until_it_answers(server, url, folder / "log")
            yield url.replace("postgresql:", "postgresql+psycopg:")
        finally:
            server.send_signal(signal.SIGQUIT)  # immediate shutdown: nothing of it is kept
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_programs() -> Path:
    """The folder with `initdb` and `postgres`: on the PATH, else the newest of Debian's.

    Raises:
        PostgresMissing: neither has them.
    """
    if found := shutil.which("initdb"):
        folder = Path(found).resolve().parent
        if (folder / "postgres").exists():
            return folder
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: float(path.parts[-3]), default=None)
    if newest is None:
        raise PostgresMissing(
            "no PostgreSQL server found: looked for initdb and postgres on the PATH and in /usr/lib/postgresql/*/bin; "
            "install it (Debian: apt-get install postgresql) or set SANJAYA_TEST_POSTGRES to the URL of one"
        )
    return newest.parent


def _unprivileged_user() -> pwd.struct_passwd | None:
    """The user to run as: None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresMissing("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as")


def _as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments of `subprocess` for running as that user."""
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _initialise(programs: Path, data: Path, user: pwd.struct_passwd | None) -> None:
    command: list[str | Path] = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "sanjaya",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, cwd=data.parent, env=environment, capture_output=True, text=True, check=False, **_as(user)
    )
    if done.returncode != 0:
        raise PostgresMissing(f"initdb ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def _start(programs: Path, data: Path, port: int, user: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
    """The server as our child: should this process be killed, the kernel ends it too."""
    command: list[str | Path] = [
        programs / "postgres",
        "-D",
        data,
        "-p",
        str(port),
        "-h",
        "127.0.0.1",
        "-k",
        data.parent,
    ]
    command += ["-c", "fsync=off", "-c", "synchronous_commit=off"]
    with (data.parent / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=data.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_end_with_parent,
            **_as(user),
        )


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait_until_it_answers(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise PostgresMissing(f"the server does not answer: {error}\n{log.read_text()}") from None
            time.sleep(0.05)
