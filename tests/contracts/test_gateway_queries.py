"""What the gateway asks every few seconds does not grow with the jobs that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from libs.contracts.read_models import JobRow, JobState
from services.gateway.adapters import job_queries, usage_queries
from services.gateway.adapters.usage_queries import UsedBy
from services.projection.adapters.store import Store
from services.projection.core import Rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path / 'read_models.db'}", "lab")
    store.build()
    assert store.swap()
    yield store
    store.close()


def with_jobs(store: Store, *states: str) -> None:
    rows = Rows(store.live.load)
    for number, state in enumerate(states):
        row = JobRow(id=f"j-{number}", name="n", tenant="t", user_name="u", job_class="guaranteed", priority=0, gpus=1)
        row.state = state  # type: ignore[assignment]
        rows.put(row)
    before = store.live.checkpoint()
    store.live.save(rows, before, replace(before, next_offset=len(states), log_id="first"), 0.0)


def plans_of(store: Store, query: Callable[[sa.Connection], Any]) -> list[str]:
    """How SQLite would find the rows of each statement of a query."""
    asked: list[tuple[str, Any]] = []
    sa.event.listen(
        store.engine, "before_cursor_execute", lambda c, cursor, text, given, *_: asked.append((text, given))
    )
    with store.engine.connect() as connection:
        query(connection)
        statements = list(asked)
        return [
            str(row[3])
            for text, given in statements
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given)
        ]


@pytest.mark.parametrize("query", [job_queries.live, job_queries.count_live, job_queries.oldest_waiting])
def test_jobs_that_have_ended_are_not_looked_at(store: Store, query: Callable[[sa.Connection], Any]) -> None:
    plans = plans_of(store, query)
    assert any("SEARCH jobs USING INDEX" in plan for plan in plans), plans
    assert not any(plan.startswith("SCAN jobs") for plan in plans), plans


def test_gpu_time_of_long_ago_is_not_looked_at(store: Store) -> None:
    plans = plans_of(store, lambda connection: usage_queries.used(connection, UsedBy.TENANT, 100.0, 200.0))
    assert any("SEARCH holdings USING INDEX ix_holdings_end_s" in plan for plan in plans), plans
    assert not any(plan.startswith("SCAN holdings") for plan in plans), plans


def test_every_job_that_has_not_ended_is_found(store: Store) -> None:
    with_jobs(store, *(state.value for state in JobState))
    with store.engine.connect() as connection:
        found = {job.state for job in job_queries.live(connection)}
    assert found == set(JobState) - {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED}
