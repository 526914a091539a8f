"""Archive and live log are one log, whatever was archived and removed; what is damaged is named."""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from libs.bus.embedded import remover
from libs.bus.naming import CONTROL, log_id
from libs.bus.port import Bus, BusError, Message, Outgoing, Partition, Position
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.archive import (
    MANIFEST,
    Archive,
    NotGivenBack,
    archive,
    give_back,
    whole_reader,
    writing,
)
from libs.inspect.archive.files import locked, sum_of
from libs.inspect.archive.manifest import Manifest, new_manifest, read_manifest, write_manifest
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from services.roster import SERVICES
from tests.unit.inspect.archived_cell import commit, filled, told, verified
from tests.unit.inspect.small_cell import messages, with_header

END = sum(message.partition == CONTROL for message in messages())
STARTS = {"placement": END}
JOBS = sorted({message.key for message in messages() if dict(message.headers)["ce_type"] == b"job.arrived.v1"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest_asyncio.fixture
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    """The small cell's log: in a file where the test asks for its path, else in memory."""
    in_file = "path" in request.fixturenames
    bus = await filled(f"sqlite:///{request.getfixturevalue('path')}" if in_file else "memory:")
    yield bus
    await bus.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several segments, and several transactions of removing, of a log of 88 records."""
    monkeypatch.setattr(writing, "SEGMENT_RECORDS", 16)
    monkeypatch.setattr(remover, "MESSAGES_PER_TRANSACTION", 7)


async def archived(bus: Bus, directory: Path, before: int) -> Archive:
    return await archive(bus, directory, before, contiguous=True)


async def moved(bus: Bus, directory: Path, before: int) -> None:
    """Archive and give back."""
    await give_back(bus, await archived(bus, directory, before), before, STARTS)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def everything(source: Path, archive: Path | None = None) -> list[Message]:
    with open_log(str(source), cell="lab", archive=archive) as log:
        return list(log.messages)


@pytest.mark.parametrize("before", [1, 17, 40, END - 1, END])
async def test_archive_and_live_log_read_as_the_log_before(bus: Bus, path: Path, directory: Path, before: int):
    def seen() -> object:
        return verified(str(path)), [told(str(path), job) for job in JOBS], everything(path)

    earlier = await asyncio.to_thread(seen)
    await moved(bus, directory, before)
    assert await bus.begin_offset(CONTROL) == before
    later = await asyncio.to_thread(seen)
    assert later == earlier
    assert verified_ok(earlier)


def verified_ok(seen: object) -> bool:
    assert isinstance(seen, tuple)
    return bool(seen[0].ok and seen[0].events == END and seen[0].orders_compared)


async def test_orders_go_with_their_causes(bus: Bus, directory: Path):
    opened = await archived(bus, directory, 40)
    ids = {dict(message.headers)["ce_id"]: message.offset for message in messages() if message.partition == CONTROL}
    orders = [message for message in messages() if message.partition.topic is Topic.ORDERS]
    assert {opened.next_offset(message.partition) for message in orders} != {0}
    for message in orders:
        cause = ids[dict(message.headers)["ce_causationid"]]
        assert (message.offset < opened.next_offset(message.partition)) == (cause < 40)


async def test_an_archive_alone_is_a_log(bus: Bus, directory: Path):
    await moved(bus, directory, 40)
    with open_log(str(directory), cell="lab") as log:
        assert log.header.cell == "lab"
        result = verify(log, SERVICES)
    assert result.ok
    assert result.events == 40


async def test_an_archive_is_continued(bus: Bus, directory: Path):
    await archived(bus, directory, 20)
    first = contents(directory)
    await moved(bus, directory, 20)
    await moved(bus, directory, 60)
    assert first[MANIFEST] != contents(directory)[MANIFEST]
    assert {name: data for name, data in first.items() if name != MANIFEST}.items() <= contents(directory).items()
    manifest = read_manifest(directory)
    assert manifest.next_offset(CONTROL) == 60
    chain = [manifest.root, *(segment.digest for segment in manifest.segments)]
    assert [segment.previous for segment in manifest.segments] == chain[:-1]
    assert manifest.log_id == dict(messages()[0].headers)["ce_id"].decode()


async def test_the_same_records_make_the_same_archive(bus: Bus, directory: Path):
    await archived(bus, directory, 20)
    await archived(bus, directory, 60)
    again = directory.with_name("again")
    await archived(bus, again, 20)
    await archived(bus, again, 60)
    assert contents(again) == contents(directory)


async def test_archiving_what_is_archived_changes_nothing(bus: Bus, directory: Path):
    await moved(bus, directory, 40)
    before = contents(directory)
    await moved(bus, directory, 40)
    await moved(bus, directory, 30)
    assert contents(directory) == before
    assert await bus.begin_offset(CONTROL) == 40
    note = await bus.archived()
    assert note is not None and note.next_offset == 40


async def test_an_archive_that_was_taken_elsewhere_is_found_by_its_directory(bus: Bus, path: Path, directory: Path):
    before = await asyncio.to_thread(verified, str(path))
    await moved(bus, directory, 40)
    elsewhere = directory.rename(directory.with_name("elsewhere"))
    with pytest.raises(BusError, match=r"control/0@0-39 of cell lab are in the archive .*/archive, which is not there"):
        await asyncio.to_thread(verified, str(path))
    assert await asyncio.to_thread(verified, str(path), elsewhere) == before
    await moved(bus, elsewhere, 40)
    assert await asyncio.to_thread(verified, str(path)) == before


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".parquet"])
@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (flipped, r"SHA-256 [0-9a-f]{64}; expected [0-9a-f]{64}"),
        (lambda data: data[:-3], r"\d+ bytes; expected \d+"),
        (lambda data: data + b"\n", r"\d+ bytes; expected \d+"),
        (None, r"No such file"),
    ],
)
async def test_an_altered_segment_is_named_and_nothing_is_removed_or_overwritten(
    bus: Bus, directory: Path, suffix: str, damage: Callable[[bytes], bytes] | None, what: str
):
    opened = await archived(bus, directory, 40)
    name = f"control-0-000000000016-000000000031{suffix}"
    if damage is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(damage((directory / name).read_bytes()))
    before = contents(directory)
    sentence = rf"{name}: segment control/0@16-31: {what}"
    with pytest.raises(BadInput, match=sentence):
        await give_back(bus, opened, 40, STARTS)
    with pytest.raises(BadInput, match=sentence):
        await archived(bus, directory, 60)
    assert contents(directory) == before
    assert await bus.begin_offset(CONTROL) == 0


async def test_what_precedes_an_altered_segment_is_read_and_nothing_of_it(bus: Bus, directory: Path):
    await archived(bus, directory, 40)
    name = directory / "control-0-000000000016-000000000031.jsonl.gz"
    name.write_bytes(flipped(name.read_bytes()))
    found: list[int] = []
    with pytest.raises(BadInput, match="segment control/0@16-31"):
        found.extend(message.offset for message in Archive.open(directory).messages(CONTROL, 0))
    assert found == list(range(16))
    assert [message.offset for message in Archive.open(directory).messages(CONTROL, 35)] == list(range(35, 40))


def rehashed(manifest: Manifest) -> Manifest:
    """The chain made anew: what a forger would do."""
    chained = new_manifest(manifest.cell, manifest.log_id, contiguous=manifest.contiguous)
    for segment in manifest.segments:
        chained = chained.added(msgspec.structs.replace(segment, previous=chained.head))
    return chained


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda m: msgspec.structs.replace(m, segments=m.segments[:-1]), r"head [0-9a-f]{64}; expected"),
        (lambda m: msgspec.structs.replace(m, segments=m.segments[1:]), r"names [0-9a-f]{64} as the segment before it"),
        (lambda m: msgspec.structs.replace(m, log_id="forged"), r"names [0-9a-f]{64} as the segment before it"),
        (lambda m: msgspec.structs.replace(m, format="sanjaya-archive/9"), r"format 'sanjaya-archive/9'; expected"),
        (
            lambda m: rehashed(msgspec.structs.replace(m, segments=m.segments[:1] + m.segments[2:])),
            r"segment control/0@32-39: begins at offset 32; expected 16",
        ),
        (
            lambda m: rehashed(
                msgspec.structs.replace(m, segments=(msgspec.structs.replace(m.segments[0], records=99),))
            ),
            r"segment control/0@0-15: 99 records from 0 to 16",
        ),
        (
            lambda m: rehashed(msgspec.structs.replace(m, log_id="other")),
            r"that begins with event other; expected cell",
        ),
        (lambda m: rehashed(msgspec.structs.replace(m, cell="field")), r"of the log of cell 'field' that begins"),
    ],
)
async def test_a_manifest_that_does_not_fit_is_refused(
    bus: Bus, directory: Path, change: Callable[[Manifest], Manifest], what: str
):
    await archived(bus, directory, 40)
    write_manifest(directory, change(read_manifest(directory)))
    before = contents(directory)
    with pytest.raises(BadInput, match=rf"{MANIFEST}.*{what}"):
        await moved(bus, directory, 60)
    assert contents(directory) == before
    assert await bus.begin_offset(CONTROL) == 0


async def test_a_manifest_cut_in_the_middle_is_refused(bus: Bus, directory: Path):
    await moved(bus, directory, 40)
    text = (directory / MANIFEST).read_bytes()
    (directory / MANIFEST).write_bytes(text[: len(text) // 2])
    with pytest.raises(
        BadInput, match=f"{MANIFEST}: Input data was truncated; expected a manifest of sanjaya-archive/1"
    ):
        await archived(bus, directory, 60)
    with pytest.raises(BusError, match=f"{MANIFEST}: Input data was truncated"):
        await whole_reader(bus, {CONTROL: 0})


async def test_an_archive_that_ends_before_the_log_begins_is_refused(bus: Bus, path: Path, directory: Path):
    await moved(bus, directory, 20)
    older = contents(directory)
    await moved(bus, directory, 40)
    (directory / MANIFEST).write_bytes(older[MANIFEST])
    before = contents(directory)
    with pytest.raises(BusError, match=r"control/0 of cell lab begins at offset 40, and its archive .* ends at 20"):
        await asyncio.to_thread(everything, path)
    with pytest.raises(BadInput, match=r"control/0: ends at offset 20, and the log begins at 40"):
        await archived(bus, directory, 60)
    assert contents(directory) == before
    sentence = r"other: control/0: ends at offset 0, and the log begins at 40; expected the archive of .*/archive$"
    with pytest.raises(BadInput, match=sentence):
        await archived(bus, directory.with_name("other"), 60)
    assert not (directory.with_name("other") / MANIFEST).exists()


async def test_records_that_the_archive_has_otherwise_than_the_log_are_not_removed(bus: Bus, directory: Path):
    opened = await archived(bus, directory, 16)
    name = opened.manifest.segments[0].jsonl.name
    lines = gzip.decompress((directory / name).read_bytes()).replace(b'"offset":3,', b'"offset":3 ,')
    forged = gzip.compress(
        lines.replace(b'"key":"tenant', b'"key":"TENANT').replace(b'"count":1', b'"count":2'), mtime=0
    )
    (directory / name).write_bytes(forged)
    segment = msgspec.structs.replace(
        opened.manifest.segments[0], jsonl=msgspec.structs.replace(sum_of(directory / name), name=name)
    )
    rest = opened.manifest.segments[1:]
    write_manifest(directory, rehashed(msgspec.structs.replace(opened.manifest, segments=(segment, *rest))))
    with pytest.raises(
        BadInput, match=r"control/0: has another record at control/0@\d+; expected the record control/0@"
    ):
        await give_back(bus, Archive.open(directory), 16, STARTS)
    assert await bus.begin_offset(CONTROL) == 0


async def test_nothing_is_removed_that_a_service_needs(bus: Bus, directory: Path):
    opened = await archived(bus, directory, 40)
    needed = {"admission": END, "quota": 39, "placement": 0}
    with pytest.raises(
        NotGivenBack, match=r"before offset 40 .*: quota is saved at offset 39, placement is saved nowhere"
    ):
        await give_back(bus, opened, 40, needed)
    assert await bus.begin_offset(CONTROL) == 0
    assert await bus.archived() is None
    given = await give_back(bus, opened, 39, {"quota": 39})
    assert given.befores[CONTROL] == 39 == await bus.begin_offset(CONTROL)


async def test_orders_that_no_agent_has_read_stay(bus: Bus, path: Path, directory: Path):
    order = next(message for message in messages() if message.partition.topic is Topic.ORDERS)
    await commit(bus, f"agent/{order.key}", {order.partition: Position(1)})
    before = await asyncio.to_thread(everything, path)
    given = await give_back(bus, await archived(bus, directory, END), END, STARTS)
    assert given.waiting == {order.partition: order.key}
    assert await bus.begin_offset(order.partition) == 1
    others = [p for p in await bus.partitions(Topic.ORDERS) if p != order.partition]
    assert [await bus.begin_offset(p) for p in others] == [await bus.end_offset(p) for p in others]
    assert await asyncio.to_thread(everything, path) == before


async def test_an_order_that_was_appended_late_stays_behind_its_partition(bus: Bus, directory: Path):
    """Its cause is archived, and an order before it has a cause that is not: the partition keeps its order."""
    orders = [message for message in messages() if message.partition.topic is Topic.ORDERS]
    partition = orders[0].partition
    (early,) = [m for m in orders if m.partition == partition][:1]
    copied = with_header(early, "ce_id", "late")
    await bus.append([outgoing(copied)])
    opened = await archived(bus, directory, 40)
    assert 0 < opened.next_offset(partition) < await bus.end_offset(partition) - 1


def outgoing(message: Message) -> Outgoing:
    """The message to be appended once more."""
    return Outgoing(topic=message.partition.topic, key=message.key, headers=message.headers, value=message.value)


@pytest.mark.parametrize("before", [0, END + 1])
async def test_what_is_not_on_the_log_cannot_be_archived(bus: Bus, directory: Path, before: int):
    with pytest.raises(BusError, match=f"offset {before} cannot be archived up to; expected 1 to its end, {END}"):
        await archived(bus, directory, before)
    assert not directory.exists()


async def test_a_directory_of_something_else_is_left_alone(bus: Bus, directory: Path):
    directory.mkdir()
    (directory / "thesis.tex").write_text("mine")
    with pytest.raises(
        BadInput, match=r"archive: holds thesis.tex and no manifest.json; expected an archive, or an empty"
    ):
        await archived(bus, directory, 20)
    assert contents(directory) == {"thesis.tex": b"mine"}


async def test_one_process_at_a_time_archives(bus: Bus, directory: Path):
    directory.mkdir()
    with locked(directory), pytest.raises(BadInput, match="another process archives into it now"):
        await archived(bus, directory, 20)


async def test_the_file_gives_its_space_back(bus: Bus, path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()  # segments and transactions of their usual size
    await bus.append([outgoing(messages()[0])] * 3000)
    size = path.stat().st_size + path.with_name("log.db-wal").stat().st_size
    end = await bus.end_offset(CONTROL)
    await give_back(bus, await archive(bus, directory, end, contiguous=True), end, {"placement": end})
    assert path.stat().st_size + path.with_name("log.db-wal").stat().st_size < size / 5
    assert await bus.end_offset(CONTROL) == end


async def test_an_older_version_does_not_take_the_rest_for_the_whole(bus: Bus, path: Path, directory: Path):
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    await moved(bus, directory, 20)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


async def test_the_log_keeps_its_name(bus: Bus, directory: Path):
    name = await log_id(bus)
    await moved(bus, directory, 20)
    assert await log_id(bus) == name == dict(messages()[0].headers)["ce_id"].decode()


async def test_a_reader_goes_from_the_archive_on_into_the_log_and_waits_there(bus: Bus, directory: Path):
    await moved(bus, directory, 40)
    reader = await whole_reader(bus, {CONTROL: 30})
    found: list[Message] = []
    while len(found) < END - 30:
        found += await reader.next_batch(3, 5.0)
    assert [message.offset for message in found] == list(range(30, END))
    assert await reader.next_batch(3, 0.0) == []
    waiting = asyncio.create_task(reader.next_batch(3, 20.0))
    await bus.append([outgoing(messages()[0])])
    assert [message.offset for message in await waiting] == [END]
    await reader.close()
    with pytest.raises(BusError, match="closed"):
        await reader.next_batch(3, 0.0)


async def test_a_cancelled_read_of_the_archive_loses_nothing(bus: Bus, directory: Path):
    await moved(bus, directory, 40)
    reader = await whole_reader(bus, {CONTROL: 0})
    found: list[int] = []
    for turns in range(40):
        reading = asyncio.create_task(reader.next_batch(1, 5.0))
        for _ in range(turns % 5):
            await asyncio.sleep(0)
        reading.cancel()
        (outcome,) = await asyncio.gather(reading, return_exceptions=True)
        if isinstance(outcome, list):
            found += [message.offset for message in outcome]
    while len(found) < END:
        found += [message.offset for message in await reader.next_batch(10, 5.0)]
    assert found == list(range(END))
    await reader.close()


async def test_short_lived_topics_begin_where_they_begin(bus: Bus, directory: Path):
    logs = Partition(Topic.LOGS, 0)
    await moved(bus, directory, 40)
    reader = await whole_reader(bus, {logs: 0})
    assert await reader.next_batch(1, 0.0) == []
    await reader.close()
