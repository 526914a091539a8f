"""Sweeps, their trials, and what the scripts of jobs report."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from services.projection.migrations.columns import boolean, integer, json, real, text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reports",
        text("job_id"),
        integer("attempt"),
        text("name"),
        real("step"),
        real("value"),
        real("time_s"),
        integer("log_offset"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "name", "step", name="pk_reports"),
    )
    op.create_table(
        "sweeps",
        text("id"),
        text("name"),
        json("spec"),
        text("submitted_by"),
        text("state"),
        text("reason"),
        text("message"),
        integer("best_trial", nullable=True),
        real("best_value", nullable=True),
        json("best_parameters"),
        real("submitted_s"),
        real("ended_s", nullable=True),
        integer("arrived_offset"),
        integer("version"),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
    )
    op.create_index("ix_sweeps_arrived_offset", "sweeps", ["arrived_offset"])
    op.create_index("ix_sweeps_name", "sweeps", ["name"])
    op.create_index("ix_sweeps_state_arrived_offset", "sweeps", ["state", "arrived_offset"])
    op.create_table(
        "trials",
        text("job_id"),
        text("sweep_id"),
        integer("number"),
        json("parameters"),
        text("state"),
        boolean("favourite"),
        text("reason"),
        text("message"),
        integer("reports"),
        real("best_value", nullable=True),
        real("last_step", nullable=True),
        real("last_value", nullable=True),
        real("started_s"),
        real("ended_s", nullable=True),
        integer("version"),
        sa.PrimaryKeyConstraint("job_id", name="pk_trials"),
    )
    op.create_index("ix_trials_sweep_id_number", "trials", ["sweep_id", "number"])


def downgrade() -> None:
    for table in ("trials", "sweeps", "reports"):
        op.drop_table(table)
