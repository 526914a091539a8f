"""The first form of the read models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from services.projection.migrations.columns import boolean, integer, json, real, text

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attempts",
        text("job_id"),
        integer("attempt"),
        json("placement"),
        real("placed_s"),
        real("started_s", nullable=True),
        real("ended_s", nullable=True),
        text("outcome"),
        integer("exit_code", nullable=True),
        integer("signal", nullable=True),
        text("failure", nullable=True),
        text("reason"),
        text("message"),
        integer("version"),
        sa.PrimaryKeyConstraint("job_id", "attempt", name="pk_attempts"),
    )
    op.create_table(
        "checkpoint",
        text("cell"),
        integer("next_offset"),
        text("log_id"),
        integer("fold_version"),
        real("changed_s"),
        sa.PrimaryKeyConstraint("cell", name="pk_checkpoint"),
    )
    op.create_table(
        "event_counts",
        text("source"),
        text("type"),
        integer("events"),
        integer("newest_offset"),
        real("newest_s"),
        sa.PrimaryKeyConstraint("source", "type", name="pk_event_counts"),
    )
    op.create_table(
        "events",
        integer("log_offset"),
        text("id"),
        text("type"),
        text("source"),
        text("subject"),
        text("job_id", nullable=True),
        text("node_id", nullable=True),
        real("time_s"),
        real("appended_at_s"),
        text("causation_id"),
        json("data"),
        sa.PrimaryKeyConstraint("log_offset", name="pk_events"),
    )
    op.create_index("ix_events_id", "events", ["id"])
    op.create_index("ix_events_job_id_log_offset", "events", ["job_id", "log_offset"])
    op.create_index("ix_events_node_id_log_offset", "events", ["node_id", "log_offset"])
    op.create_index("ix_events_type_log_offset", "events", ["type", "log_offset"])
    op.create_table(
        "gpus",
        text("id"),
        text("node_id"),
        integer("gpu_index"),
        text("gpu_type"),
        integer("memory_bytes"),
        text("uuid"),
        boolean("healthy"),
        boolean("present"),
        text("note"),
        text("job_id", nullable=True),
        integer("attempt", nullable=True),
        text("tenant", nullable=True),
        json("packed"),
        integer("version"),
        sa.PrimaryKeyConstraint("id", name="pk_gpus"),
    )
    op.create_index("ix_gpus_job_id", "gpus", ["job_id"])
    op.create_table(
        "job_labels",
        text("job_id"),
        text("name"),
        text("value"),
        sa.PrimaryKeyConstraint("job_id", "name", name="pk_job_labels"),
    )
    op.create_index("ix_job_labels_name_value", "job_labels", ["name", "value"])
    op.create_table(
        "jobs",
        text("id"),
        text("name"),
        text("tenant"),
        text("user_name"),
        text("job_class"),
        integer("priority"),
        integer("gpus"),
        json("gpu_types"),
        json("labels"),
        json("spec"),
        text("submitted_by"),
        text("state"),
        text("reason"),
        text("message"),
        json("numbers"),
        json("rejected"),
        text("reason_source"),
        integer("reason_offset"),
        integer("attempt"),
        json("placement"),
        json("tasks"),
        boolean("holds_gpus"),
        integer("granted_gpus"),
        json("reserved_nodes"),
        real("submitted_s"),
        real("queued_s"),
        real("placed_s", nullable=True),
        real("started_s", nullable=True),
        real("first_started_s", nullable=True),
        real("finished_s", nullable=True),
        real("not_before_s", nullable=True),
        integer("exit_code", nullable=True),
        integer("signal", nullable=True),
        text("failure", nullable=True),
        text("failure_category", nullable=True),
        text("deciding_line", nullable=True),
        integer("failed_attempts"),
        integer("preemptions"),
        boolean("held"),
        boolean("cancel_requested"),
        boolean("preempted"),
        text("migration_id", nullable=True),
        real("rate_per_s", nullable=True),
        real("loss", nullable=True),
        integer("minibatches"),
        integer("memory_peak_bytes", nullable=True),
        integer("arrived_offset"),
        integer("version"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_arrived_offset", "jobs", ["arrived_offset"])
    op.create_index("ix_jobs_name", "jobs", ["name"])
    op.create_index("ix_jobs_state_arrived_offset", "jobs", ["state", "arrived_offset"])
    op.create_index("ix_jobs_tenant_arrived_offset", "jobs", ["tenant", "arrived_offset"])
    op.create_table(
        "nodes",
        text("id"),
        text("state"),
        integer("incarnation"),
        text("address"),
        text("rack"),
        boolean("virtual"),
        text("agent_version"),
        json("gpu_indices"),
        boolean("present"),
        boolean("draining"),
        boolean("drained"),
        text("note"),
        real("joined_s", nullable=True),
        real("changed_s"),
        integer("version"),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
    )
    op.create_table(
        "profiles",
        text("job_id"),
        integer("attempt"),
        real("window_start_s"),
        real("window_s"),
        integer("minibatches_total"),
        real("rate_per_s"),
        real("loss", nullable=True),
        integer("memory_peak_bytes"),
        integer("memory_min_bytes"),
        integer("log_offset"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "window_start_s", name="pk_profiles"),
    )
    op.create_table(
        "settings",
        text("service"),
        text("name"),
        json("value"),
        text("changed_by"),
        real("changed_s"),
        text("note"),
        integer("version"),
        sa.PrimaryKeyConstraint("service", "name", name="pk_settings"),
    )
    op.create_table(
        "tenants",
        text("name"),
        integer("gpu_limit", nullable=True),
        real("weight"),
        integer("granted_gpus"),
        boolean("configured"),
        integer("version"),
        sa.PrimaryKeyConstraint("name", name="pk_tenants"),
    )


def downgrade() -> None:
    for table in (
        "tenants",
        "settings",
        "profiles",
        "nodes",
        "jobs",
        "job_labels",
        "gpus",
        "events",
        "event_counts",
        "checkpoint",
        "attempts",
    ):
        op.drop_table(table)
