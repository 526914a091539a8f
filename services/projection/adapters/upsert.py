"""The one statement that SQLite and PostgreSQL spell alike but SQLAlchemy keeps in two places."""

from __future__ import annotations

import sqlalchemy as sa


def upsert(dialect: sa.Dialect, table: sa.Table) -> sa.TextClause:
    """Insert rows, or replace those with the same primary key unless they are newer (`version`).

    As text: SQLAlchemy compiles an `INSERT` of a dialect's own anew at each use, which takes as long as the rest.
    """
    words = dialect.identifier_preparer
    name = words.format_table(table)
    names = [words.format_column(column) for column in table.c]
    keys = ", ".join(words.format_column(column) for column in table.primary_key.columns)
    changes = ", ".join(
        f"{word} = excluded.{word}" for word, column in zip(names, table.c, strict=True) if not column.primary_key
    )
    newer = f" WHERE {name}.version <= excluded.version" if "version" in table.c else ""
    return sa.text(
        f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join(f':{column.name}' for column in table.c)})"
        f" ON CONFLICT ({keys}) DO UPDATE SET {changes}{newer}"
    ).bindparams(*(sa.bindparam(column.name, type_=column.type) for column in table.c))
