"""What the read models of a database hold."""

from __future__ import annotations

import sqlalchemy as sa

from libs.contracts.read_models import Row
from services.projection.adapters.store import Store
from services.projection.core.rows import key_of
from services.projection.tables import LIVE


def stored(store: Store, row_type: type[Row]) -> list[Row]:
    """All rows of a table, by primary key."""
    with store.engine.connect() as connection:
        keys = [tuple(row) for row in connection.execute(sa.select(*LIVE.of[row_type].primary_key.columns))]
    return sorted(store.live.load(row_type, keys), key=key_of)


def tables_of(store: Store) -> set[str]:
    """Names of all tables, the gateway's own included."""
    return set(sa.inspect(store.engine).get_table_names())
