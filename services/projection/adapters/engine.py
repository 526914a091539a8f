"""SQL engines for the read models."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import make_url

_PRIMARY = 0xFF
"""Bits of a result code of SQLite that say what it is; the others go into detail."""


def open_engine(url: str) -> sa.Engine:
    """An engine for a `sqlite:///` or `postgresql+psycopg://` URL; a SQLite file's folder is made.

    SQLite runs in WAL mode, so that readers never wait for the projection. A power cut may lose its last
    commits; the log has them, and the checkpoint goes back with them.
    """
    parsed = make_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    engine = sa.create_engine(
        parsed,
        json_serializer=_to_json,
        json_deserializer=msgspec.json.decode,
        pool_pre_ping=not is_sqlite,
        # A prepared statement fails once the table behind a name is another one with other types.
        connect_args={} if is_sqlite else {"prepare_threshold": None},
    )
    if is_sqlite:
        if parsed.database and parsed.database != ":memory:":
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        sa.event.listen(engine, "connect", _set_pragmas)
    return engine


def waiting_helps(error: sa.exc.DBAPIError) -> bool:
    """Whether what has failed may succeed later: the database is away, locked or full.

    It never will where the statement does not fit the tables, or the file is damaged or no database. PostgreSQL has
    classes of errors of their own for that; SQLite calls a missing table an operational error, too, and tells it from
    the others by the result code.
    """
    if not isinstance(error, sa.exc.OperationalError):
        return False
    code: int | None = getattr(error.orig, "sqlite_errorcode", None)
    return code is None or code & _PRIMARY != sqlite3.SQLITE_ERROR


def _set_pragmas(connection: Any, _record: object) -> None:
    # With the older ALTER TABLE a view of the user's keeps the name that it reads when tables are swapped.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000", "legacy_alter_table=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _to_json(value: Any) -> str:
    encoded = msgspec.json.encode(value)
    if b"\\u0000" in encoded:
        encoded = msgspec.json.encode(without_nul(value))
    return encoded.decode()


def without_nul(value: Any) -> Any:
    """The same value with NUL characters replaced: PostgreSQL can store none, and jobs do write them."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    return value
