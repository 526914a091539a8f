"""What a cell needs of its brokers and topics, held against what `inspection.py` has read of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from libs.bus.kafka.connection import REQUEST_BYTES, TRANSACTION_TIMEOUT_MS
from libs.bus.kafka.topic_settings import KEPT, most_in_sync, settings_of
from libs.contracts.base import Topic

A_MONTH_MINUTES = 30 * 24 * 60
A_YEAR_MINUTES = 365 * 24 * 60
A_WEEK_MS = 7 * 24 * 3600 * 1000
AN_HOUR_MS = 3600 * 1000

FIRST_OF_4_0, FIRST_OF_4_1, FIRST_OF_4_2, FIRST_OF_4_3 = 22, 26, 28, 30
"""Levels of the feature `metadata.version` with which these releases began; brokers tell no other version."""

READ_COMMITTED = "a record that a service has committed is lost when a broker that lagged behind is elected"


@dataclass(frozen=True)
class Setting:
    """A setting as a broker tells it."""

    value: str
    read_only: bool = False
    """A running broker cannot be given another value: its file is changed and it is started anew."""


@dataclass(frozen=True)
class Seen:
    """What was found."""

    servers: str
    """As in the bus URL, for commands."""
    secured: bool
    """Commands need the client's security settings too."""
    brokers: Mapping[str, Mapping[str, Setting]]
    """{broker id: {setting: what it is}}"""
    metadata_levels: Mapping[str, int | None]
    """{broker id: highest `metadata.version` that it supports}; None of a broker that does not tell."""
    cell: str
    topics: Mapping[Topic, Mapping[str, Setting]]
    """{topic: {setting: what it is}} of those of the cell's topics that exist."""
    replicas: Mapping[Topic, int]
    """{topic: fewest copies of any of its partitions}"""


@dataclass(frozen=True)
class Compared:
    """One setting of one broker or topic."""

    where: str
    setting: str
    found: str
    needed: str
    why: str
    ok: bool
    change: str = ""
    """What to do when it is not ok: a command, or the line of a broker's file."""


@dataclass(frozen=True)
class Need:
    """One setting that must be within bounds."""

    setting: str
    needed: str
    """For people."""
    set_to: str
    """The value to give it."""
    why: str
    met: Callable[[str], bool]


BROKER_NEEDS = (
    Need(
        "offsets.retention.minutes",
        f"≥ {A_MONTH_MINUTES}",
        str(A_YEAR_MINUTES),
        "positions are kept in groups without members and forgotten so long after their last commit",
        lambda value: int(value) >= A_MONTH_MINUTES,
    ),
    Need(
        "transactional.id.expiration.ms",
        f"≥ {A_WEEK_MS}",
        str(A_WEEK_MS),
        "the session of a service that has had nothing to write for so long breaks at its next commit",
        lambda value: int(value) >= A_WEEK_MS,
    ),
    Need(
        "transaction.max.timeout.ms",
        f"≥ {TRANSACTION_TIMEOUT_MS}",
        "900000",
        "no session can be opened when the broker refuses the timeout that it asks for",
        lambda value: int(value) >= TRANSACTION_TIMEOUT_MS,
    ),
    Need(
        "message.max.bytes",
        f"≥ {REQUEST_BYTES}",
        str(REQUEST_BYTES),
        "a topic that was created by hand takes this limit; a job's code and requests come near it",
        lambda value: int(value) >= REQUEST_BYTES,
    ),
    Need(
        "unclean.leader.election.enable",
        "false",
        "false",
        "positions and transactions are topics too: " + READ_COMMITTED,
        lambda value: value == "false",
    ),
    Need(
        "auto.create.topics.enable",
        "false",
        "false",
        "a cell's name with a typing error would become topics with the broker's retention",
        lambda value: value == "false",
    ),
)


def compare(seen: Seen) -> list[Compared]:
    """A row for every setting that a cell depends on, brokers first."""
    found: list[Compared] = []
    for broker, settings in seen.brokers.items():
        found.append(_version(broker, seen.metadata_levels.get(broker)))
        found += _against(f"broker {broker}", settings, BROKER_NEEDS, lambda need, s: _change_broker(seen, need, s))
    for topic in Topic:
        found += _topic(seen, topic)
    return found


def _topic(seen: Seen, topic: Topic) -> Iterator[Compared]:
    name = f"{seen.cell}.{topic.value}"
    where = f"topic {name}"
    if topic not in seen.topics:
        why = "the first process of the cell that starts creates it"
        yield Compared(where, "exists", "no", "yes", why, False, f"start a service with SANJAYA_CELL={seen.cell}")
        return
    replicas = seen.replicas[topic]
    yield _replication(seen, where, name, replicas)
    needs = topic_needs(topic, replicas)
    yield from _against(where, seen.topics[topic], needs, lambda need, s: _change_topic(seen, name, need))


def topic_needs(topic: Topic, replicas: int) -> list[Need]:
    """What a topic must be set to.

    Args:
        topic: of a cell.
        replicas: how many copies its partitions have.
    """
    right = settings_of(topic, replicas)
    most = most_in_sync(replicas)
    least = min(2, most)
    in_sync = str(most) if least == most else f"{least} to {most}"
    return [
        Need(
            "cleanup.policy",
            "delete",
            "delete",
            "compaction keeps the last record of a key alone",
            lambda value: value == "delete",
        ),
        *_retention(topic, right),
        Need(
            "max.message.bytes",
            f"≥ {REQUEST_BYTES}",
            right["max.message.bytes"],
            "a larger record is refused, and the service that decided it stops",
            lambda value: int(value) >= REQUEST_BYTES,
        ),
        Need(
            "min.insync.replicas",
            in_sync,
            right["min.insync.replicas"],
            "so many brokers have a record before it counts; as many as there are copies: no writes when one is away",
            lambda value: least <= int(value) <= most,
        ),
        Need("unclean.leader.election.enable", "false", "false", READ_COMMITTED, lambda value: value == "false"),
        Need(
            "message.timestamp.type",
            "LogAppendTime",
            "LogAppendTime",
            "else records are dated by the clocks of their producers, and services go by whichever is ahead",
            lambda value: value == "LogAppendTime",
        ),
    ]


def _retention(topic: Topic, right: Mapping[str, str]) -> list[Need]:
    if topic in KEPT:
        why = "operators look at it when they come to it" if topic is Topic.DEADLETTER else "the log is the truth: kept"
        return [
            Need(setting, "-1", right[setting], why, lambda value: value == "-1")
            for setting in ("retention.ms", "retention.bytes")
        ]
    return [
        Need(
            "retention.ms",
            f"≥ {AN_HOUR_MS}",
            right["retention.ms"],
            "what no reader has read yet is gone when a service is away for longer",
            lambda value: int(value) == -1 or int(value) >= AN_HOUR_MS,
        )
    ]


def _against(
    where: str,
    settings: Mapping[str, Setting],
    needs: tuple[Need, ...] | list[Need],
    change: Callable[[Need, Setting], str],
) -> Iterator[Compared]:
    for need in needs:
        setting = settings.get(need.setting)
        if setting is None:  # a version that has no such setting
            continue
        ok = need.met(setting.value)
        advice = "" if ok else change(need, setting)
        yield Compared(where, need.setting, setting.value, need.needed, need.why, ok, advice)


def _version(broker: str, level: int | None) -> Compared:
    """Releases 4.3.0 to 4.4.0 can lose an acknowledged transaction; they tell their metadata level alone."""
    found = "not told" if level is None else f"{_release(level)} (metadata.version {level})"
    ok = level is None or level < FIRST_OF_4_3
    return Compared(
        f"broker {broker}",
        "version",
        found,
        "before 4.3",
        "4.3.0, 4.3.1 and 4.4.0 can lose a transaction that they have acknowledged (infra/decisions/0016-kafka-4-2.md)",
        ok,
        "" if ok else "run Kafka 4.2.2; of 4.3 and later only a release in which KAFKA-20734 is mended",
    )


def _release(level: int) -> str:
    begun = ((FIRST_OF_4_3, "4.3 or later"), (FIRST_OF_4_2, "4.2"), (FIRST_OF_4_1, "4.1"), (FIRST_OF_4_0, "4.0"))
    return next((name for first, name in begun if level >= first), "3")


def _replication(seen: Seen, where: str, name: str, replicas: int) -> Compared:
    wanted = min(3, len(seen.brokers))
    ok = replicas >= wanted
    advice = (
        f"kafka-reassign-partitions.sh {_to(seen)} --execute --reassignment-json-file FILE, with {wanted} brokers "
        f"for each partition of {name} in FILE; for new cells ?replication_factor={wanted} in SANJAYA_BUS"
    )
    return Compared(
        where,
        "replicas",
        str(replicas),
        f"≥ {wanted}",
        "the records of a broker that is lost for good are gone unless others have them",
        ok,
        "" if ok else advice,
    )


def _change_topic(seen: Seen, name: str, need: Need) -> str:
    return _configs(seen, f"--entity-type topics --entity-name {name}", need)


def _change_broker(seen: Seen, need: Need, setting: Setting) -> str:
    if setting.read_only:
        line = f"{need.setting}={need.set_to}"
        return f"{line} in every broker's server.properties, and start them anew one by one"
    return _configs(seen, "--entity-type brokers --entity-default", need)


def _configs(seen: Seen, entity: str, need: Need) -> str:
    return f"kafka-configs.sh {_to(seen)} --alter {entity} --add-config {need.setting}={need.set_to}"


def _to(seen: Seen) -> str:
    security = " --command-config client.properties" if seen.secured else ""
    return f"--bootstrap-server {seen.servers}{security}"
