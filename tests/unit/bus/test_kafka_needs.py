"""What brokers and topics are set to, held against what a cell needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libs.bus.kafka.needs import BROKER_NEEDS, Compared, Seen, Setting, compare, topic_needs
from libs.bus.kafka.topic_settings import KEPT, settings_of
from libs.contracts.base import Topic

READ_ONLY = {
    "offsets.retention.minutes",
    "transactional.id.expiration.ms",
    "transaction.max.timeout.ms",
    "auto.create.topics.enable",
}
"""Of a running Kafka 4.2 broker."""


def as_needed(replicas: int = 1, brokers: int = 1) -> Seen:
    """A cell as its own code sets it up."""
    broker = {need.setting: Setting(need.set_to, need.setting in READ_ONLY) for need in BROKER_NEEDS}
    topics = {topic: {name: Setting(v) for name, v in settings_of(topic, replicas).items()} for topic in Topic}
    return Seen(
        servers="k1:9092",
        secured=False,
        brokers={str(number): broker for number in range(1, brokers + 1)},
        metadata_levels={str(number): 29 for number in range(1, brokers + 1)},
        cell="lab",
        topics=topics,
        replicas=dict.fromkeys(Topic, replicas),
    )


def with_topic(seen: Seen, topic: Topic, **settings: str) -> Seen:
    changed = {name.replace("_", "."): Setting(value) for name, value in settings.items()}
    return replace(seen, topics={**seen.topics, topic: {**seen.topics[topic], **changed}})


def with_broker(seen: Seen, name: str, value: str) -> Seen:
    found = {broker: {**s, name: Setting(value, name in READ_ONLY)} for broker, s in seen.brokers.items()}
    return replace(seen, brokers=found)


def bad(seen: Seen) -> list[Compared]:
    return [row for row in compare(seen) if not row.ok]


def only_bad(seen: Seen) -> Compared:
    [row] = bad(seen)
    return row


@pytest.mark.parametrize(("replicas", "brokers"), [(1, 1), (2, 2), (3, 3), (3, 5)])
def test_topics_as_they_are_created_are_as_needed(replicas: int, brokers: int):
    rows = compare(as_needed(replicas, brokers))
    assert [row for row in rows if not row.ok] == []
    assert not any(row.change for row in rows)
    assert {row.where for row in rows if row.where.startswith("topic")} == {
        f"topic lab.{topic.value}" for topic in Topic
    }


@pytest.mark.parametrize("topic", Topic)
def test_every_setting_that_is_needed_of_a_topic_is_stated_when_it_is_created(topic: Topic):
    assert {need.setting for need in topic_needs(topic, 3)} <= set(settings_of(topic, 3))
    assert {"retention.ms", "retention.bytes", "cleanup.policy"} <= set(settings_of(topic, 3))


def test_the_log_is_kept_for_ever_and_measurements_are_not():
    kept = {topic for topic in Topic if settings_of(topic, 1)["retention.ms"] == "-1"}
    assert kept == set(KEPT) == {Topic.CONTROL, Topic.ORDERS, Topic.DEADLETTER}


@pytest.mark.parametrize("topic", KEPT)
@pytest.mark.parametrize("setting", ["retention.ms", "retention.bytes"])
def test_a_kept_topic_that_forgets_gets_a_command(topic: Topic, setting: str):
    row = only_bad(with_topic(as_needed(), topic, **{setting.replace(".", "_"): "604800000"}))
    name = f"lab.{topic.value}"
    assert (row.where, row.setting, row.found, row.needed) == (f"topic {name}", setting, "604800000", "-1")
    assert row.change == (
        "kafka-configs.sh --bootstrap-server k1:9092 --alter"
        f" --entity-type topics --entity-name {name} --add-config {setting}=-1"
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cleanup_policy", "compact"),
        ("max_message_bytes", "1048588"),
        ("unclean_leader_election_enable", "true"),
    ],
)
def test_what_is_wrong_with_control_is_found(setting: str, value: str):
    row = only_bad(with_topic(as_needed(), Topic.CONTROL, **{setting: value}))
    assert (row.setting, row.found) == (setting.replace("_", "."), value)
    right = settings_of(Topic.CONTROL, 1)[row.setting]
    assert row.change.endswith(f"--entity-name lab.control --add-config {row.setting}={right}")


@pytest.mark.parametrize(
    ("replicas", "in_sync", "ok"),
    [(1, "1", True), (2, "1", True), (2, "2", False), (3, "1", False), (3, "2", True), (3, "3", False), (5, "2", True)],
)
def test_in_sync_replicas_are_more_than_one_and_fewer_than_all(replicas: int, in_sync: str, ok: bool):
    seen = with_topic(as_needed(replicas, 1), Topic.ORDERS, min_insync_replicas=in_sync)
    assert (bad(seen) == []) is ok


@pytest.mark.parametrize(("value", "ok"), [("3599999", False), ("3600000", True), ("-1", True)])
def test_measurements_outlast_a_short_absence(value: str, ok: bool):
    assert (bad(with_topic(as_needed(), Topic.TELEMETRY, retention_ms=value)) == []) is ok


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("offsets.retention.minutes", "10080"),
        ("transactional.id.expiration.ms", "3600000"),
        ("transaction.max.timeout.ms", "10000"),
        ("auto.create.topics.enable", "true"),
    ],
)
def test_what_a_running_broker_cannot_change_is_a_line_of_its_file(setting: str, value: str):
    row = only_bad(with_broker(as_needed(), setting, value))
    assert (row.where, row.setting, row.found) == ("broker 1", setting, value)
    assert row.change.startswith(f"{setting}=") and "server.properties" in row.change


@pytest.mark.parametrize(
    ("setting", "value"), [("message.max.bytes", "1048588"), ("unclean.leader.election.enable", "true")]
)
def test_what_a_running_broker_can_change_is_a_command(setting: str, value: str):
    row = only_bad(with_broker(as_needed(), setting, value))
    right = "16777216" if setting == "message.max.bytes" else "false"
    assert row.change == (
        "kafka-configs.sh --bootstrap-server k1:9092 --alter"
        f" --entity-type brokers --entity-default --add-config {setting}={right}"
    )


def test_commands_for_a_secured_cluster_name_the_file_with_the_clients_settings():
    seen = replace(with_topic(as_needed(), Topic.CONTROL, retention_ms="1"), secured=True)
    assert "--bootstrap-server k1:9092 --command-config client.properties --alter" in only_bad(seen).change


@pytest.mark.parametrize(
    ("level", "release", "ok"),
    [
        (None, "not told", True),
        (21, "3 ", True),
        (25, "4.0 ", True),
        (27, "4.1 ", True),
        (29, "4.2 ", True),
        (30, "4.3 or later ", False),
        (35, "4.3 or later ", False),
    ],
)
def test_releases_that_lose_transactions_are_named(level: int | None, release: str, ok: bool):
    rows = compare(replace(as_needed(), metadata_levels={"1": level}))
    [row] = [row for row in rows if row.setting == "version"]
    assert row.found.startswith(release) and row.ok is ok
    assert ("KAFKA-20734" in row.change) is not ok


def test_one_copy_among_many_brokers_is_too_few():
    rows = bad(as_needed(replicas=1, brokers=3))
    assert {(row.setting, row.needed) for row in rows} == {("replicas", "≥ 3")} and len(rows) == len(Topic)


def test_a_topic_that_is_not_there_is_said():
    seen = as_needed()
    seen = replace(seen, topics={topic: s for topic, s in seen.topics.items() if topic is not Topic.LOGS})
    row = only_bad(seen)
    assert (row.where, row.setting, row.found) == ("topic lab.logs", "exists", "no")
