"""What an agent and the gateway say to each other about the log.

Every request is a POST with a body in MessagePack, because values are bytes, and so is its answer. A request may be
sent again whenever its answer does not come: reading changes nothing, a session is taken over once for each claim, and
a commit happens once for each number. An append outside of a session may happen twice, as the port allows.

An error is a problem document; what it means for the caller of the port is in `ERRORS`.
"""

from __future__ import annotations

import msgspec

from libs.bus.port import (
    MAX_MESSAGE_BYTES,
    Archived,
    BusError,
    BusUnavailable,
    Fenced,
    LogFull,
    Message,
    MessageTooLarge,
    OutcomeUnknown,
    Outgoing,
    Partition,
    Position,
    Refused,
)
from libs.contracts.base import Topic

MEDIA_TYPE = "application/msgpack"
ROOT = "/v1/bus"
MAX_REQUEST_BYTES = 8 * MAX_MESSAGE_BYTES
"""Of the body of one request."""
LONGEST_POLL_S = 20.0
"""Most that the gateway keeps a read waiting: an answer that is later than that does not come any more."""
MOST_MESSAGES = 1000
"""Of one answer."""

ERRORS: dict[str, type[BusError]] = {
    "unauthenticated": Refused,
    "forbidden": Refused,
    "fenced": Fenced,
    "too-large": MessageTooLarge,
    "disk-full": LogFull,
    "unavailable": BusUnavailable,
    "unknown-outcome": OutcomeUnknown,
}
"""{last part of a problem's type: the port's error}; `offset-lost` says more, all others are a BusError."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says of its log."""

    cell: str
    archived: Archived | None = None
    node_timeout_s: float | None = None
    """Silence after which, and after the margin, a node is lost; None, and no margin: older gateways do not say it."""
    lease_margin_s: float | None = None
    """Tasks stop so long before that time-out (`libs/node/lease.py`)."""


class TopicQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """How many partitions a topic has."""

    topic: Topic


class TopicAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """It has so many."""

    partitions: int


class ExtentQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Where a partition begins and ends."""

    partition: Partition


class ExtentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of the oldest message that is kept, and after the last one."""

    begin: int
    end: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read a partition from."""

    partition: Partition
    offset: int


class ReadQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The next messages of some partitions, those to be served first at the front."""

    starts: list[Start]
    max_messages: int
    timeout_s: float
    """How long to wait for a message; at most `LONGEST_POLL_S`."""


class ReadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, in order in each partition.

    A message that is not for the caller is left out. The last one of a partition stands here without key, headers and
    value, so that the caller knows how far it has come.
    """

    messages: list[Message]


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that was asked for more than it keeps, in the problem `offset-lost`."""

    partition: Partition
    begin: int


class AppendQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Append outside of any session."""

    outputs: list[Outgoing]


class SessionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Take over a session."""

    session: str
    claim: str
    """Chosen at random by the new holder, the same when the request is repeated."""


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The session is the caller's."""

    epoch: int


class PositionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """How far a session has come."""

    session: str
    partition: Partition


class PositionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """So far."""

    position: Position


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A position to be committed."""

    partition: Partition
    position: Position


class CommitQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Append all outputs and move all positions, or nothing of it."""

    session: str
    epoch: int
    number: int
    """1 for the holder's first commit, one more for each later one; the same when the request is repeated."""
    outputs: list[Outgoing]
    moves: list[Move]


class CommitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """It is done."""

    offsets: list[int]
    """Of the outputs, in order."""


class KeyQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The secret with which the gateway asks this node's agent for files of jobs."""

    node_id: str


class KeyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The secret of this node alone (`libs/node/serving.py`); None where the gateway has no cell's key."""

    key: bytes | None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing more is to be said."""


QUESTIONS_AND_ANSWERS = (
    Hello,
    TopicQuestion,
    TopicAnswer,
    ExtentQuestion,
    ExtentAnswer,
    Start,
    ReadQuestion,
    ReadAnswer,
    Lost,
    AppendQuestion,
    SessionQuestion,
    SessionAnswer,
    PositionQuestion,
    PositionAnswer,
    Move,
    CommitQuestion,
    CommitAnswer,
    KeyQuestion,
    KeyAnswer,
    Done,
)
