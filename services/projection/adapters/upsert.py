"""The one statement that SQLite and PostgreSQL spell alike but SQLAlchemy keeps in two places."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def insert_into(dialect: str, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """The dialect's own insert, which knows `ON CONFLICT`."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def upsert(dialect: str, table: sa.Table) -> sa.Executable:
    """Insert rows, or replace those with the same primary key unless they are newer (`version`)."""
    statement = insert_into(dialect, table)
    values = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    newer = table.c.version <= statement.excluded.version if "version" in table.c else None
    return statement.on_conflict_do_update(index_elements=table.primary_key.columns, set_=values, where=newer)
