"""What the first revision has come to make only after there were databases of it.

A database that was made before says that it has the first revision, and lacks the table and the column. Its rows are of
an older fold and are made anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from services.projection.migrations.columns import integer, json, real, text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    found = sa.inspect(op.get_bind())
    if not found.has_table("event_counts"):
        op.create_table(
            "event_counts",
            text("source"),
            text("type"),
            integer("events"),
            integer("newest_offset"),
            real("newest_s"),
            sa.PrimaryKeyConstraint("source", "type", name="pk_event_counts"),
        )
    if "packed" not in [column["name"] for column in found.get_columns("gpus")]:
        packed = json("packed")
        packed.server_default = sa.DefaultClause("[]")
        op.add_column("gpus", packed)
    if "ix_events_source_log_offset" in [index["name"] for index in found.get_indexes("events")]:
        op.drop_index("ix_events_source_log_offset", "events")


def downgrade() -> None:
    """Nothing to undo: the first revision makes all of it."""
