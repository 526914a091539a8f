"""A log is opened wherever it is, and reads the same everywhere."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from libs.bus.connect import connect
from libs.bus.embedded.schema import OFFSET_BITS
from libs.bus.naming import CONTROL
from libs.bus.port import BusError, Message, Outgoing, Position, TopicLayout
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.jsonl import write_jsonl
from libs.inspect.logs import Log
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from services.roster import SERVICES
from tests.unit.inspect.archived_cell import commit
from tests.unit.inspect.small_cell import header, messages, small_cell


async def write_embedded(url: str, sent: list[Message]) -> None:
    bus = await connect(url, "lab")
    await bus.create_topics(TopicLayout())
    await bus.append([Outgoing(topic=m.partition.topic, key=m.key, headers=m.headers, value=m.value) for m in sent])
    await bus.close()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:  # taken when the simulation was
        for message in sent:
            place = message.partition
            file.execute(
                "UPDATE messages SET appended_at_s=? WHERE id ="
                f" ((SELECT id FROM partitions WHERE topic=? AND number=?) << {OFFSET_BITS} | ?)",
                (message.appended_at_s, place.topic, place.index, message.offset),
            )


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    asyncio.run(write_embedded(f"sqlite:///{path}", messages()))
    return path


def essence(message: Message) -> tuple[object, ...]:
    return (message.partition, message.offset, message.key, message.headers, message.value)


def test_an_embedded_log_is_read_by_its_file_and_by_its_url(embedded: Path):
    for source in (str(embedded), f"sqlite:///{embedded}?mode=ro"):
        with open_log(source, cell="lab") as log:
            assert log.header.contiguous
            assert [essence(m) for m in log.messages] == [essence(m) for m in messages()]


def test_an_embedded_log_is_audited_like_an_exported_one(embedded: Path, tmp_path: Path):
    with open_log(str(embedded), cell="lab", sessions=[s.name for s in SERVICES]) as log:
        live = verify(replace(log, header=structs.replace(log.header, rules=header().rules)), SERVICES)
    path = tmp_path / "log.jsonl"
    with path.open("wb") as out:
        write_jsonl(Log(header(), iter(messages())), out)
    with open_log(str(path), cell="lab") as log:
        exported = verify(log, SERVICES)
    assert live.ok and exported.ok
    assert live.state_hashes == exported.state_hashes
    assert live.decisions == exported.decisions


def test_a_position_that_the_bus_does_not_know_is_left_out(embedded: Path):
    async def commit_one() -> None:
        bus = await connect(f"sqlite:///{embedded}", "lab")
        await commit(bus, "quota", {CONTROL: Position(7)})
        await bus.close()

    asyncio.run(commit_one())
    with open_log(str(embedded), cell="lab", sessions=["quota", "placement"]) as log:
        assert log.header.positions == {"quota": 7}
        assert (log.header.position("quota"), log.header.position("placement")) == (7, None)


def test_only_the_topics_asked_for_are_read(embedded: Path):
    with open_log(str(embedded), cell="lab", topics=[Topic.CONTROL]) as log:
        assert {m.partition.topic for m in log.messages} == {Topic.CONTROL}
        assert log.header.topics == ("control",)


def test_reading_leaves_the_log_as_it_is(embedded: Path):
    before = embedded.read_bytes()
    with open_log(str(embedded), cell="lab") as log:
        records = list(log.records())
    assert embedded.read_bytes() == before
    assert len(records) == len(messages())


def test_control_records_alone():
    log = Log(header(), iter(messages()))
    assert [record.offset for record in log.control()] == list(range(small_cell().log.end))


def test_standard_input(monkeypatch):
    out = io.BytesIO()
    write_jsonl(Log(header(), iter(messages())), out)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(out.getvalue())))
    with open_log("-", cell="lab") as log:
        assert list(log.messages) == messages()


def test_what_is_no_log_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="No such file"), open_log(str(tmp_path / "none"), cell="lab"):
        pass
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(BadInput, match="text:1"), open_log(str(tmp_path / "text"), cell="lab"):
        pass
    with pytest.raises(BusError, match="expected sqlite"), open_log("carrier-pigeon://loft", cell="lab"):
        pass
