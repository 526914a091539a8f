"""The read models' tables on SQLite and PostgreSQL: one suite, the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from libs.contracts.agent import JobExited
from libs.contracts.base import Event
from libs.contracts.failure_analysis import FailureClassified, InputQuarantined, RepeatNoticed
from libs.contracts.gateway import ArrayArrived, NodeDrainRequested, SettingChanged, TenantConfigured
from libs.contracts.groups import Dependency, GroupPlace
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import JobSucceeded
from libs.contracts.read_models import ROW_TYPES, JobRow, Row
from libs.contracts.reasons import Reason
from libs.testing.core_case import arrival
from services.projection.adapters import store as store_module
from services.projection.adapters.engine import without_nul
from services.projection.adapters.read_model import AnotherWriter, Checkpoint, ReadModel, WrongCell
from services.projection.adapters.store import Found, Store
from services.projection.core import Rows, apply, prefetch
from services.projection.core.rows import key_of
from services.projection.tables import LIVE, NAMES, Generation, schema_of
from tests.unit.projection.stored import stored, tables_of
from tests.unit.projection.story import Story, exited
from tests.unit.projection.sweep_story import promoted, pruned, report, sweep_arrived, trial

pytest_plugins = ["libs.testing.postgres"]


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A database without tables."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'folder' / 'read_models.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    store = Store(url, "lab")
    yield store
    store.close()


@pytest.fixture
def store(empty: Store) -> Store:
    """A database with a live read model that has no rows."""
    empty.build()
    assert empty.swap()
    return empty


def beside(store: Store, cell: str = "lab", digest: str = "of another version") -> Store:
    """The database as a projection of another version or cell has it."""
    return Store(store.engine.url.render_as_string(hide_password=False), cell, digest)


def whole_story() -> Story:
    """Jobs at every stage, with everything that SQL could choke on."""
    member = arrival("k", 1, labels={"team": "ä", "note": "nul\0"})
    place = GroupPlace(group_id="a", index=3)
    story = Story().running().says(msgspec.structs.replace(member, group=place, after=[Dependency(on="j")]))
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
    why = Reason(code="Test", message="a\0b")
    return story.says(
        *measured,
        crash,
        line,
        RepeatNoticed(user="ada", cause="x", jobs=["k"], reason=why),
        InputQuarantined(input="/d\0", jobs=["k"], users=["ada"], causes=["x"], reason=why),
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
        ArrayArrived(group_id="a", spec=member.spec, indices=[3], at_once=1, submitted_by="ada"),
    )


def keep(model: ReadModel, story: Story, sizes: random.Random | None = None) -> None:
    """Store the story in batches, each folded on what SQL has of the ones before."""
    left = list(story.records)
    while left:
        size = sizes.randint(1, 7) if sizes else len(left)
        batch, left = left[:size], left[size:]
        before = model.checkpoint()
        rows = Rows(model.load)
        prefetch(rows, batch)
        for record in batch:
            apply(rows, record)
        model.save(rows, before, Checkpoint(batch[-1].offset + 1, story.records[0].envelope.id, model.digest), 1.0)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_rows_in_sql_are_those_of_the_fold_in_memory(store: Store, seed: int | None) -> None:
    story = whole_story()
    keep(store.live, story, random.Random(seed) if seed else None)
    for row_type in ROW_TYPES:
        expected = sorted(story.rows.all(row_type), key=key_of)
        assert expected, f"the story has no {row_type.__name__}"
        assert [_comparable(row) for row in stored(store, row_type)] == [_comparable(row) for row in expected]


def _comparable(row: Row) -> object:
    return without_nul(msgspec.to_builtins(row))


def test_rows_and_position_change_together(store: Store) -> None:
    keep(store.live, whole_story())
    before = store.live.checkpoint()
    rows = Rows(store.live.load)
    broken = rows.get(JobRow, "j")
    assert broken is not None
    broken.name, broken.tenant = "changed", None  # type: ignore[assignment]
    rows.put(broken)
    with pytest.raises(sa.exc.IntegrityError):
        store.live.save(rows, before, replace(before, next_offset=before.next_offset + 1), 2.0)
    assert store.live.checkpoint() == before
    assert next(iter(store.live.load(JobRow, [("j",)]))).name == "j"  # type: ignore[attr-defined]


def test_a_second_writer_is_found_out(store: Store) -> None:
    keep(store.live, whole_story())
    old = replace(store.live.checkpoint(), next_offset=1)
    with pytest.raises(AnotherWriter, match="not at offset 1"):
        store.live.save(Rows(), old, replace(old, next_offset=2), 1.0)


def test_a_writer_of_another_version_is_found_out(store: Store) -> None:
    keep(store.live, whole_story())
    now, other = store.live.checkpoint(), beside(store)
    with pytest.raises(AnotherWriter, match="another version"):
        other.live.checkpoint()
    with pytest.raises(AnotherWriter, match="of another version any more"):
        other.live.save(Rows(), now, replace(now, next_offset=now.next_offset + 1), 1.0)
    assert store.live.checkpoint() == now
    other.close()


def test_the_database_of_another_cell_is_refused(store: Store) -> None:
    keep(store.live, whole_story())
    other = beside(store, cell="other")
    with pytest.raises(WrongCell, match="cell 'lab'"):
        other.found()
    other.close()


def test_older_rows_do_not_replace_newer_ones(store: Store) -> None:
    keep(store.live, whole_story())
    job = next(iter(store.live.load(JobRow, [("j",)])))
    assert isinstance(job, JobRow)
    rows = Rows()
    job.name, job.version = "stale", job.version - 1
    rows.put(job)
    before = store.live.checkpoint()
    store.live.save(rows, before, replace(before, next_offset=before.next_offset + 1), 1.0)
    assert next(iter(store.live.load(JobRow, [("j",)]))).name == "j"  # type: ignore[attr-defined]


def test_the_first_tables_are_empty_and_are_all_there_are(empty: Store) -> None:
    assert empty.found() == Found(None, None)
    empty.build()
    assert empty.found() == Found(None, Checkpoint(0, "", empty.digest))
    assert empty.swap()
    assert empty.live.checkpoint() == Checkpoint(0, "", empty.digest)
    assert tables_of(empty) == set(NAMES)


def test_a_swap_exchanges_all_tables_and_leaves_what_is_not_the_projections(store: Store) -> None:
    keep(store.live, whole_story())
    with store.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE gateway_keys (event_id TEXT)"))
        connection.execute(sa.text("INSERT INTO gateway_keys VALUES ('e')"))
    for _ in range(3):  # names of indexes and constraints are unique in a database
        store.build()
        keep(store.building, whole_story(), random.Random(1))
        assert store.swap()
        store.tidy()
        assert tables_of(store) == {*NAMES, "gateway_keys"}
        assert len(stored(store, JobRow)) == 4
    with store.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT * FROM gateway_keys")).scalars().all() == ["e"]


def test_the_tables_that_are_swapped_in_have_the_indexes_and_keys(store: Store) -> None:
    there = sa.inspect(store.engine)
    for table in LIVE.metadata.sorted_tables:
        indexes = {tuple(index["column_names"]) for index in there.get_indexes(table.name)}
        assert indexes == {tuple(column.name for column in index.columns) for index in table.indexes}
        keys = there.get_pk_constraint(table.name)["constrained_columns"]
        assert sorted(keys) == sorted(column.name for column in table.primary_key.columns)


def test_what_is_behind_is_not_swapped_in(store: Store) -> None:
    keep(store.live, whole_story())
    store.build()
    assert not store.swap()
    assert len(stored(store, JobRow)) == 4
    keep(store.building, whole_story())
    assert store.swap()


def test_what_was_wrong_is_replaced_by_what_is_behind_but_once(store: Store) -> None:
    keep(store.live, whole_story())
    looked = store.found()
    store.build()
    assert store.swap(looked)
    assert all(stored(store, row_type) == [] for row_type in ROW_TYPES)
    store.build()
    with pytest.raises(AnotherWriter, match="have been replaced"):
        store.swap(looked)


def test_what_was_begun_goes_on_unless_it_is_to_begin_anew(store: Store) -> None:
    store.build()
    keep(store.building, whole_story())
    begun = store.building.checkpoint()
    store.build()
    assert store.found().building == begun
    store.build(anew=True)
    assert store.found().building == Checkpoint(0, "", store.digest)


def test_what_another_version_has_begun_is_dropped_and_its_swap_is_refused(store: Store) -> None:
    other = beside(store)
    other.build()
    store.build()
    with pytest.raises(AnotherWriter, match="not there any more"):
        other.swap()
    store.tidy(building=True)
    assert not store.building.is_there()
    with pytest.raises(AnotherWriter, match="not there any more"):
        other.swap()
    other.close()
    assert tables_of(store) == set(NAMES)


def test_tables_of_a_version_that_had_others_are_dropped_too(store: Store) -> None:
    """A later version may have a table that this one knows nothing of."""
    with store.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE leases (id TEXT)"))
        listed = ",".join((*NAMES, "leases"))
        connection.execute(LIVE.checkpoint.update().values(digest="of a later version", tables=listed))
    assert store.found().live == Checkpoint(0, "", "of a later version")
    store.build()
    assert store.swap()
    store.tidy()
    assert tables_of(store) == set(NAMES)


def test_a_read_model_that_lacks_a_table_is_of_no_version(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE gpus"))
    assert store.found().live == Checkpoint(0, "", "")


def test_a_swap_that_breaks_off_changes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one transaction: killed before its last statement has been committed, it has not happened."""
    keep(store.live, whole_story())
    store.build()
    keep(store.building, whole_story())
    there = tables_of(store)
    renamed: list[str] = []

    def killed(connection: sa.Connection, before: str, after: str) -> None:
        rename(connection, before, after)
        renamed.append(after)
        if len(renamed) == 2 * len(NAMES):
            raise KeyboardInterrupt

    rename = store_module._rename
    with monkeypatch.context() as patched:
        patched.setattr(store_module, "_rename", killed)
        with pytest.raises(KeyboardInterrupt):
            store.swap()
    assert tables_of(store) == there
    assert store.swap()


def test_a_reader_that_has_begun_keeps_its_tables(store: Store) -> None:
    """SQLite shows it the tables as they were; on PostgreSQL the swap waits for it."""
    from services.gateway.adapters.tables import HOLD_TABLES

    is_sqlite = store.engine.dialect.name == "sqlite"
    keep(store.live, whole_story())
    store.build()
    keep(store.building, whole_story())
    with store.engine.connect() as reader:
        if is_sqlite:
            reader.exec_driver_sql("BEGIN")
        else:
            reader = reader.execution_options(isolation_level="REPEATABLE READ")
            reader.execute(HOLD_TABLES)
        assert reader.execute(sa.select(LIVE.checkpoint.c.next_offset)).scalar_one() > 0
        assert store.swap() == is_sqlite
        store.tidy()
        assert len(reader.execute(sa.select(LIVE.of[JobRow])).all()) == 4
    assert store.swap() if not is_sqlite else tables_of(store) == set(NAMES)


def test_a_view_of_the_users_reads_the_new_tables_on_sqlite(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'read_models.db'}", "lab")
    for _ in range(2):
        store.build(anew=True)
        assert store.swap()
        store.tidy()
        with store.engine.begin() as connection:
            connection.execute(sa.text("CREATE VIEW IF NOT EXISTS mine AS SELECT id FROM jobs"))
    keep(store.live, whole_story())
    with store.engine.connect() as connection:
        assert len(connection.execute(sa.text("SELECT id FROM mine")).all()) == 4
    store.close()


def test_the_digest_knows_columns_types_keys_and_indexes() -> None:
    forms = {schema_of(LIVE)}
    for change in (
        lambda of: of[JobRow].append_column(sa.Column("extra", sa.Text())),
        lambda of: setattr(of[JobRow].c.priority, "type", sa.Text()),
        lambda of: setattr(of[JobRow].c.loss, "nullable", False),
        lambda of: sa.Index("extra", of[JobRow].c.priority),
    ):
        generation = Generation()
        assert schema_of(generation) == schema_of(LIVE)
        change(generation.of)
        forms.add(schema_of(generation))
    assert len(forms) == 5


def test_the_gateway_reads_the_columns_that_there_are() -> None:
    """The gateway declares what it reads by itself: the services share a database and no code."""
    from services.gateway.adapters import tables

    for row_type in ROW_TYPES:
        read = tables.table_of(row_type)
        written = LIVE.of[row_type]
        assert read.name == written.name
        assert {column.name: type(column.type) for column in read.columns} == {
            column.name: type(column.type) for column in written.columns
        }
    assert {column.name for column in tables.checkpoint.columns} <= {column.name for column in LIVE.checkpoint.columns}


def test_what_is_stored_is_what_the_gateway_reads(store: Store) -> None:
    from services.gateway.adapters.tables import rows_of, table_of

    story = whole_story()
    keep(store.live, story)
    with store.engine.connect() as connection:
        for row_type in ROW_TYPES:
            read = rows_of(row_type, connection.execute(sa.select(table_of(row_type))))
            assert sorted(read, key=key_of) == stored(store, row_type)
