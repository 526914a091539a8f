"""What real brokers and topics are set to: read, compared, and mended by the commands that the doctor gives."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from typer.testing import CliRunner

from libs.bus.kafka import KafkaBus
from libs.bus.kafka.inspection import look
from libs.bus.kafka.needs import Compared, compare
from libs.bus.local_broker import LocalBroker, fetch_jars, kafka_version
from libs.bus.local_broker.java import find_java
from libs.bus.port import BusUnavailable, TopicLayout
from libs.cli.main import app_for
from libs.contracts.base import Topic

CELL = "lab"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker with two settings of which a cell would come to harm."""
    properties = {"offsets.retention.minutes": "1", "message.max.bytes": "1048588"}
    with LocalBroker(tmp_path_factory.mktemp("kafka"), properties=properties) as broker:
        yield broker


def url(broker: LocalBroker) -> str:
    return f"kafka://{broker.bootstrap}"


async def bad(broker: LocalBroker, cell: str) -> list[Compared]:
    return [row for row in compare(await look(url(broker), cell)) if not row.ok]


async def create_topics(broker: LocalBroker, cell: str) -> None:
    bus = await KafkaBus.connect(url(broker), cell)
    await bus.create_topics(TopicLayout())
    await bus.close()


async def test_what_the_broker_is_set_to_is_found_and_a_new_cells_topics_are_as_needed(broker: LocalBroker):
    await create_topics(broker, CELL)
    found = [(row.where, row.setting, row.found) for row in await bad(broker, CELL)]
    assert found == [
        ("broker 1", "offsets.retention.minutes", "1"),
        ("broker 1", "message.max.bytes", "1048588"),
    ]


async def test_the_brokers_release_is_told(broker: LocalBroker):
    [version] = [row for row in compare(await look(url(broker), CELL)) if row.setting == "version"]
    assert version.ok and version.found.startswith(kafka_version().rsplit(".", 1)[0] + " ")


async def test_topics_that_exist_keep_their_settings_and_the_command_mends_them(broker: LocalBroker):
    cell = "made-by-hand"
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(f"{cell}.orders", 8, 1, topic_configs={"retention.ms": "86400000"})])
    await admin.close()
    await create_topics(broker, cell)
    rows = {row.setting: row for row in await bad(broker, cell) if row.where == f"topic {cell}.orders"}
    assert {name: row.found for name, row in rows.items()} == {
        "retention.ms": "86400000",
        "max.message.bytes": "1048588",
    }
    for row in rows.values():
        run_kafka_configs(row.change)
    assert [row for row in await bad(broker, cell) if row.where.startswith("topic")] == []


def run_kafka_configs(command: str) -> None:
    """What kafka-configs.sh does, which is not among the broker's jars: run its class."""
    script, *arguments = command.split()
    assert script == "kafka-configs.sh"
    jars = ":".join(str(jar) for jar in fetch_jars().glob("*.jar"))
    java = [find_java().executable, "-Xmx128m", "-cp", jars, "kafka.admin.ConfigCommand", *arguments]
    done = subprocess.run(java, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_topics_that_do_not_exist_are_said(broker: LocalBroker):
    missing = {row.where for row in await bad(broker, "nowhere") if row.setting == "exists"}
    assert missing == {f"topic nowhere.{topic.value}" for topic in Topic}


def test_the_doctor_shows_the_table_and_the_changes(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["doctor", "--gateway", "http://127.0.0.1:1", "--bus", url(broker), "--cell", CELL]
    result = CliRunner().invoke(app_for(), arguments)
    assert result.exit_code == 1
    assert "BAD\tbroker 1\toffsets.retention.minutes\t1\t≥ 43200\tpositions are kept" in result.stdout
    assert "ok\ttopic lab.control\tretention.ms\t-1\t-1\t" in result.stdout
    assert "broker 1, offsets.retention.minutes: offsets.retention.minutes=525600 in every broker's" in result.stdout


def test_a_broker_that_is_away_is_one_sentence(tmp_path: Path):
    arguments = ["doctor", "--gateway", "http://127.0.0.1:1", "--bus", "kafka://127.0.0.1:1", "--cell", CELL]
    result = CliRunner().invoke(app_for(), arguments)
    assert result.exit_code == 1
    assert "error: cannot read the settings of 127.0.0.1:1" in result.stderr


async def test_a_broker_that_is_away_is_unavailable():
    with pytest.raises(BusUnavailable, match="cannot read the settings"):
        await look("kafka://127.0.0.1:1", CELL)
