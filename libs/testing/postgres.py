"""A private PostgreSQL for tests. Name this module in `pytest_plugins` to have the fixtures."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

_START_S = 60


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
        data, port = folder / "data", _free_port()
        _run(user, folder, programs / "initdb", "-D", data, "-U", "sanjaya", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off -c synchronous_commit=off"
        start = ("-w", "-t", str(_START_S), "-l", folder / "log", "-o", options, "start")
        _run(user, folder, programs / "pg_ctl", "-D", data, *start)
        try:
            yield f"postgresql+psycopg://sanjaya@127.0.0.1:{port}/postgres"
        finally:
            _run(user, folder, programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_programs() -> Path:
    """The folder with `initdb` and `pg_ctl`: on the PATH, else the newest of Debian's.

    Raises:
        PostgresMissing: neither has them.
    """
    if found := shutil.which("initdb"):
        folder = Path(found).resolve().parent
        if (folder / "pg_ctl").exists():
            return folder
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: float(path.parts[-3]), default=None)
    if newest is None:
        raise PostgresMissing(
            "no PostgreSQL server found: looked for initdb and pg_ctl on the PATH and in /usr/lib/postgresql/*/bin; "
            "install it (Debian: apt-get install postgresql) or set SANJAYA_TEST_POSTGRES to the URL of one"
        )
    return newest.parent


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Whom to run as: None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresMissing("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as")


def _run(user: pwd.struct_passwd | None, folder: Path, *command: str | Path) -> None:
    """Run one of the programs to its end. Its output goes to a file: a daemon would keep a pipe open."""
    output = folder / "output"
    with output.open("w") as sink:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
            timeout=_START_S * 2,
            check=False,
        )
    if done.returncode != 0:
        server_log = folder / "log"
        said = output.read_text() + (server_log.read_text() if server_log.exists() else "")
        raise PostgresMissing(f"{' '.join(str(part) for part in command)} failed with {done.returncode}:\n{said}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
