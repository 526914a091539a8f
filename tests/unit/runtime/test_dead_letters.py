"""An impossible input changes nothing and goes to the dead letters: once, whatever happens to the shell."""

from __future__ import annotations

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.port import Message, Outgoing, Partition, TopicLayout
from libs.contracts.agent import MinibatchProfiled
from libs.contracts.base import Topic
from libs.contracts.wire import Undecodable
from libs.runtime.deadletter import dead_letter, letter
from libs.testing.core_case import arrival
from libs.testing.faults import Faults, FaultyBus
from libs.testing.shells import ShellCase, ids, messages
from libs.testing.toy import TOY

WHY = "JobArrived cannot be said of job a, which has arrived; expected: an unknown job"
LIVES = 3


async def play(crash_at: int | None = None) -> ShellCase:
    """A job arrives twice; every life of the shell but the first folds that anew. One crash on the way."""
    faults = Faults()
    if crash_at is not None:
        faults.crash_at(crash_at)
    bus = FaultyBus(await connect("memory:", "letters"), faults)
    await bus.create_topics(TopicLayout())
    case = ShellCase(TOY, bus)
    await case.give(arrival("a"), arrival("a"))
    for number in range(LIVES):
        await case.give(arrival(f"b{number}"))
        await case.run_to_end()
    return case


async def test_an_impossible_input_is_a_dead_letter_and_changes_nothing():
    case = await play()
    [message] = await messages(case.bus.bus, Topic.DEADLETTER)
    twice = (await messages(case.bus.bus, Topic.CONTROL))[1]
    found = letter(message)
    assert (found.service, found.error) == (TOY.name, WHY)
    assert (found.record, found.event_id) == ("control/0@1", codec.message_id(twice))
    assert (found.event_type, found.subject, found.job_id) == ("job.arrived.v1", "a", "a")
    assert (message.key, message.value) == (twice.key, twice.value), "the original is whole"
    assert codec.envelope(message).as_sent() == codec.envelope(twice).as_sent()
    assert list(case.shell.replica.state.due_s) == ["a", "b0", "b1", "b2"]
    assert len(await ids(case.bus.bus, Topic.CONTROL)) == 5 + 4, "nothing was decided on it"


async def test_a_crash_at_any_moment_neither_loses_nor_repeats_it():
    undisturbed = await play()
    assert undisturbed.lives >= LIVES
    expected = [_origin(message) for message in await messages(undisturbed.bus.bus, Topic.DEADLETTER)]
    assert len(expected) == 1
    for moment, name in enumerate(undisturbed.bus.faults.moments):
        case = await play(moment)
        found = [_origin(message) for message in await messages(case.bus.bus, Topic.DEADLETTER)]
        assert found == expected, f"crash at moment {moment} ({name})"


def _origin(message: Message) -> tuple[str, str]:
    found = letter(message)
    return found.service, found.record


@pytest.mark.parametrize(
    ("kind", "job_id"),
    [
        ("job.arrived.v1", "x"),
        ("job.arrived.v99", "x"),
        (MinibatchProfiled.wire_type, "x"),
        ("node.joined.v1", None),
        ("no.such.v1", None),
        ("", None),
    ],
)
def test_a_letter_says_which_job_it_is_about(kind: str, job_id: str | None):
    message = Message(Partition(Topic.TELEMETRY, 3), 17, "x", [("ce_type", kind.encode())], b"{", 5.0)
    found = letter(_appended(dead_letter(message, "introspection", Undecodable("no data"))))
    assert found.job_id == job_id
    assert (found.subject, found.record, found.error) == ("x", "telemetry/3@17", "no data")


def test_a_message_of_another_program_is_read_as_far_as_it_goes():
    found = letter(_appended(Outgoing(Topic.DEADLETTER, "k", [("x-error", b"\xff odd")], b"")))
    assert (found.service, found.error, found.event_type, found.job_id) == ("", "� odd", "", None)


def _appended(message: Outgoing) -> Message:
    return Message(Partition(message.topic, 0), 0, message.key, message.headers, message.value, 6.0)
