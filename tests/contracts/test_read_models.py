"""The read models' tables on SQLite and PostgreSQL: one suite, the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from libs.contracts.agent import JobExited
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureClassified
from libs.contracts.gateway import NodeDrainRequested, SettingChanged, TenantConfigured
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import JobSucceeded
from libs.contracts.read_models import ROW_TYPES, JobRow, ReportRow, Row, SweepRow, TrialRow
from libs.testing.core_case import arrival
from services.projection.adapters.engine import without_nul
from services.projection.adapters.store import MIGRATIONS, AnotherWriter, Checkpoint, Store, WrongCell
from services.projection.core import Rows, apply, prefetch
from services.projection.core.rows import key_of
from services.projection.tables import TABLES, checkpoint, metadata
from tests.unit.projection.story import Story, exited
from tests.unit.projection.sweep_story import promoted, pruned, report, sweep_arrived, trial

pytest_plugins = ["libs.testing.postgres"]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'folder' / 'read_models.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    store = Store(url, "lab")
    store.migrate()
    yield store
    store.close()


def whole_story() -> Story:
    """Jobs at every stage, with everything that SQL could choke on."""
    story = Story().running().says(arrival("k", 1, labels={"team": "ä", "note": "nul\0"}))
    measured: list[Event] = [
        JobProfiled(
            job_id="j",
            attempt=1,
            window_start_s=float(second),
            window_s=1.0,
            minibatches_total=second,
            rate_per_s=1.0,
            loss=None if second == 2 else 1.0 / second,
            memory_peak_bytes=1 << 40,
            memory_min_bytes=1,
        )
        for second in (1, 2, 3)
    ]
    crash = JobExited(
        job_id="k", attempt=1, node_id="n1", exit_code=1, signal=None, outcome="exited", stderr_tail="\0 binary \\u0000"
    )
    line = FailureClassified(
        job_id="k", attempt=1, failure="f", category="user", retry_can_help=False, deciding_line="a\0b"
    )
    return story.says(
        *measured,
        crash,
        line,
        NodeDrainRequested(node_id="n1", note="ECC", requested_by="op"),
        TenantConfigured(tenant="vision", gpu_limit=4, requested_by="op"),
        SettingChanged(service="placement", name="number", value=2.5, requested_by="op"),
        SettingChanged(service="placement", name="word", value="x", requested_by="op"),
        SettingChanged(service="placement", name="flag", value=True, requested_by="op"),
        exited("n1"),
        exited("n2"),
        JobSucceeded(job_id="j", attempt=1),
        sweep_arrived(),
        *trial(0),
        *trial(1, optimizer="a\0b", nested=True, hidden=64),
        report(0, 1, 0.5, loss=1e-12),
        report(0, 1, 0.5, loss=1e-12),
        report(1, 2.5, 0.7),
        report(0, 2, 0.6, attempt=2),
        promoted(0),
        pruned(1),
    )


def keep(store: Store, story: Story, sizes: random.Random | None = None) -> None:
    """Store the story in batches, each folded on what SQL has of the ones before."""
    left = list(story.records)
    while left:
        size = sizes.randint(1, 7) if sizes else len(left)
        batch, left = left[:size], left[size:]
        before = store.checkpoint()
        rows = Rows(store.load)
        prefetch(rows, batch)
        for record in batch:
            apply(rows, record)
        store.save(rows, before, Checkpoint(batch[-1].offset + 1, story.records[0].envelope.id), 1.0)


def stored(store: Store, row_type: type[Row]) -> list[Row]:
    with store.engine.connect() as connection:
        keys = [tuple(row) for row in connection.execute(sa.select(*TABLES[row_type].primary_key.columns))]
    return sorted(store.load(row_type, keys), key=key_of)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_rows_in_sql_are_those_of_the_fold_in_memory(store: Store, seed: int | None) -> None:
    story = whole_story()
    keep(store, story, random.Random(seed) if seed else None)
    for row_type in ROW_TYPES:
        expected = sorted(story.rows.all(row_type), key=key_of)
        assert expected, f"the story has no {row_type.__name__}"
        assert [_comparable(row) for row in stored(store, row_type)] == [_comparable(row) for row in expected]


def _comparable(row: Row) -> object:
    return without_nul(msgspec.to_builtins(row))


def test_rows_and_position_change_together(store: Store) -> None:
    keep(store, whole_story())
    before = store.checkpoint()
    rows = Rows(store.load)
    broken = rows.get(JobRow, "j")
    assert broken is not None
    broken.name, broken.tenant = "changed", None  # type: ignore[assignment]
    rows.put(broken)
    with pytest.raises(sa.exc.IntegrityError):
        store.save(rows, before, Checkpoint(before.next_offset + 1, before.log_id), 2.0)
    assert store.checkpoint() == before
    assert next(iter(store.load(JobRow, [("j",)]))).name == "j"  # type: ignore[attr-defined]


def test_a_second_writer_is_found_out(store: Store) -> None:
    keep(store, whole_story())
    old = Checkpoint(1, store.checkpoint().log_id)
    with pytest.raises(AnotherWriter, match="not at offset 1"):
        store.save(Rows(), old, Checkpoint(2, old.log_id), 1.0)


def test_the_database_of_another_cell_is_refused(store: Store) -> None:
    keep(store, whole_story())
    other = Store(store.engine.url.render_as_string(hide_password=False), "other")
    with pytest.raises(WrongCell, match="cell 'lab'"):
        other.checkpoint()
    other.close()


def test_older_rows_do_not_replace_newer_ones(store: Store) -> None:
    keep(store, whole_story())
    job = next(iter(store.load(JobRow, [("j",)])))
    assert isinstance(job, JobRow)
    rows = Rows()
    job.name, job.version = "stale", job.version - 1
    rows.put(job)
    before = store.checkpoint()
    store.save(rows, before, Checkpoint(before.next_offset + 1, before.log_id), 1.0)
    assert next(iter(store.load(JobRow, [("j",)]))).name == "j"  # type: ignore[attr-defined]


def test_a_reset_leaves_nothing(store: Store) -> None:
    keep(store, whole_story())
    store.reset()
    assert store.checkpoint() == Checkpoint(0, "")
    assert all(stored(store, row_type) == [] for row_type in ROW_TYPES)
    keep(store, whole_story())
    assert len(stored(store, JobRow)) == 4


def test_the_revisions_make_the_tables_that_the_rows_need(store: Store) -> None:
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_revisions_can_be_undone(store: Store) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        assert set(sa.inspect(connection).get_table_names()) <= {"alembic_version"}
    store.migrate()
    assert store.checkpoint() == Checkpoint(0, "")


def test_an_older_database_is_brought_up_and_keeps_its_rows(store: Store) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    keep(store, whole_story())
    without_widths = [msgspec.structs.replace(job, widths=[]) for job in stored(store, JobRow)]
    with store.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        assert "sweeps" not in sa.inspect(connection).get_table_names()
    store.migrate()
    assert stored(store, JobRow) == without_widths  # until they are made anew, as of another version of the fold
    assert stored(store, SweepRow) == stored(store, TrialRow) == stored(store, ReportRow) == []


def test_a_migration_that_breaks_off_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.engine.begin() as connection:
        for name in sa.inspect(connection).get_table_names():
            connection.execute(sa.text(f"DROP TABLE {name}"))
    upgrade = command.upgrade

    def killed(config: Config, revision: str) -> None:
        upgrade(config, revision)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "upgrade", killed)
        with pytest.raises(KeyboardInterrupt):
            store.migrate()
    assert sa.inspect(store.engine).get_table_names() == []
    store.migrate()
    assert store.checkpoint() == Checkpoint(0, "")


def test_the_gateway_reads_the_columns_that_there_are() -> None:
    """The gateway declares what it reads by itself: the services share a database and no code."""
    from services.gateway.adapters import tables

    for row_type in ROW_TYPES:
        read = tables.table_of(row_type)
        written = TABLES[row_type]
        assert read.name == written.name
        assert {column.name: type(column.type) for column in read.columns} == {
            column.name: type(column.type) for column in written.columns
        }
    assert {column.name for column in tables.checkpoint.columns} <= {column.name for column in checkpoint.columns}


def test_what_is_stored_is_what_the_gateway_reads(store: Store) -> None:
    from services.gateway.adapters.tables import rows_of, table_of

    story = whole_story()
    keep(store, story)
    with store.engine.connect() as connection:
        for row_type in ROW_TYPES:
            read = rows_of(row_type, connection.execute(sa.select(table_of(row_type))))
            assert sorted(read, key=key_of) == stored(store, row_type)
