"""From which offset on each part of a cell needs control when it starts next."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from libs.contracts.read_models import CHECKPOINT_TABLE
from libs.kernel.replica import SnapshotDamaged
from libs.runtime.snapshots import Snapshots

_FAR = 2**62
"""Behind the end of every log."""
READ_MODELS = "read models"
GATEWAY, GATEWAY_TABLE = "gateway", "gateway_index"
"""The gateway keeps how far it has come in this table; one that keeps nothing reads the archive too."""


class StartsUnknown(Exception):
    """The database of snapshots and read models cannot be read; the message says why."""


def starts(database: str, cell: str, log_id: str, services: Iterable[str]) -> dict[str, int]:
    """{service, `read models`, `gateway`: offset that its newest whole snapshot of this log is at; 0: it has none}.

    What has snapshots without being one of the services is asked, too.

    Args:
        database: of snapshots and read models, an SQLAlchemy URL.
        cell: the cell's name.
        log_id: id of the log's first event.
        services: names of the services that must be able to start.

    Raises:
        StartsUnknown: the database cannot be read.
    """
    try:
        return _of_services(database, cell, log_id, services) | _of_read_models(database, log_id)
    except SQLAlchemyError as error:
        raise StartsUnknown(f"the database of snapshots and read models cannot be read: {error}") from error


def _of_services(database: str, cell: str, log_id: str, services: Iterable[str]) -> dict[str, int]:
    snapshots = Snapshots(database, cell)
    try:
        names = dict.fromkeys([*services, *snapshots.services()])
        return {name: _newest(snapshots, name, log_id) for name in names}
    finally:
        snapshots.close()


def _newest(snapshots: Snapshots, service: str, log_id: str) -> int:
    for stored in snapshots.load(service, log_id, _FAR):
        try:
            return stored.open().next_offset
        except SnapshotDamaged:
            continue
    return 0


def _of_read_models(database: str, log_id: str) -> dict[str, int]:
    engine = create_engine(database)
    try:
        tables = set(inspect(engine).get_table_names())
        found = {READ_MODELS: 0}
        with engine.connect() as connection:
            for name, table in ((READ_MODELS, CHECKPOINT_TABLE), (GATEWAY, GATEWAY_TABLE)):
                if table in tables:
                    query = text(f"SELECT next_offset FROM {table} WHERE log_id = :log_id")
                    found[name] = connection.execute(query, {"log_id": log_id}).scalar() or 0
    finally:
        engine.dispose()
    return found
