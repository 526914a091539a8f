"""Alembic's environment: the store hands over the connection to migrate."""

from __future__ import annotations

from alembic import context

from services.projection.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
