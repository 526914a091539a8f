"""How many GPUs a job may have. Read models of the fold before are made anew."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from services.projection.migrations.columns import json

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    widths = json("widths")
    widths.server_default = sa.DefaultClause("[]")
    op.add_column("jobs", widths)


def downgrade() -> None:
    op.drop_column("jobs", "widths")
