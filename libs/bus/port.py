"""The port: what a shell may ask of a log.

Messages are opaque here (headers and bytes); `codec` turns them into records. Topics are named without the
cell's prefix, which the adapter adds. Partitioning is murmur2 over the key on every adapter, as Kafka's own
clients do it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from libs.contracts.base import Topic
from libs.contracts.wire import Headers


class BusError(Exception):
    """The log could not do what was asked; the message says what and where."""


class BusUnavailable(BusError):
    """The log cannot be reached now. Trying again later may help; nothing was appended."""


class LogFull(BusUnavailable):
    """The disk that holds the log has no room for it; nothing was appended."""


class OutcomeUnknown(BusUnavailable):
    """The log went away during a commit: it may or may not have happened. Open the session anew and look."""


class Fenced(BusError):
    """A newer session of the same name has taken over; this one can never write again."""


class Refused(BusError):
    """The log does not take this process for what it says it is, or does not let it do what it asked for.

    Trying again does not help; nothing was appended.
    """


class MessageTooLarge(BusError):
    """A message exceeds the log's limit; the message says its size and the limit."""


class OffsetLost(BusError):
    """Messages at the asked offset are no longer kept; the message says where the log begins.

    Reading from 0 on gives what is left.
    """

    def __init__(self, message: str, begins: Mapping[Partition, int]) -> None:
        """`begins`: {partition: its oldest message that is kept} of the partitions that were asked for more."""
        super().__init__(message)
        self.begins = dict(begins)


MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Largest value that every adapter accepts."""
MAX_METADATA_BYTES = 1024
"""Longest metadata of a position that every adapter accepts."""


@dataclass(frozen=True)
class Partition:
    """One partition of one topic."""

    topic: Topic
    index: int


@dataclass(frozen=True)
class Outgoing:
    """A message to be appended."""

    topic: Topic
    key: str
    headers: Headers
    value: bytes


@dataclass(frozen=True)
class Message:
    """A message on the log."""

    partition: Partition
    offset: int
    """Strictly increasing within the partition; gaps are allowed (Kafka's transaction markers)."""
    key: str
    headers: Headers
    value: bytes
    appended_at_s: float
    """When the log took it, by the log's clock: one for all that append, which none of them can set."""


@dataclass(frozen=True)
class Position:
    """How far a session has come in a partition."""

    next_offset: int
    metadata: str = ""
    """A short note of the session's own, committed together with the offset; at most `MAX_METADATA_BYTES`."""


@dataclass(frozen=True)
class Archived:
    """What a log keeps of the records that were taken off it. Older parts of a log are removed only with this note."""

    log_id: str
    """Id of the log's first event, which names the log: the first record that is kept is another one."""
    directory: str
    """Where the archive was when the records were removed."""
    next_offset: int
    """Offset of the first control record that was not removed."""


@dataclass(frozen=True)
class TopicLayout:
    """How a cell's topics are cut; fixed when they are created."""

    partitions: Mapping[Topic, int] = field(
        default_factory=lambda: {
            Topic.CONTROL: 1,
            Topic.ORDERS: 8,
            Topic.TELEMETRY: 8,
            Topic.PROFILES: 8,
            Topic.LOGS: 8,
            Topic.DEADLETTER: 1,
        }
    )


class Reader(Protocol):
    """Reads committed messages of some partitions, each in order, from given offsets on."""

    async def next_batch(self, max_messages: int, timeout_s: float) -> list[Message]:
        """The next messages, at least one; empty only when `timeout_s` passed without any.

        Within a partition in order of offset; over partitions in no particular order, and a busy one does not
        hide the others. A call that is cancelled loses nothing: the next one returns the same messages. One
        call at a time.

        Raises:
            BusUnavailable: cannot be reached; the reader stays usable and goes on where it was.
            OffsetLost: the messages after the last ones returned, or at the start offset, are no longer kept.
        """

    async def close(self) -> None:
        """Give back what the reader holds. Idempotent."""


class Session(Protocol):
    """The exclusive, transactional writer of one name (one service, one agent, one gateway).

    Opening a session of the same name anywhere fences the older one.
    """

    async def position(self, partition: Partition) -> Position:
        """The committed position; `Position(0)` when there is none yet."""

    async def commit(
        self, outputs: Sequence[Outgoing], positions: Mapping[Partition, Position] | None = None
    ) -> list[int]:
        """Append all outputs and move all positions, or nothing of it.

        No reader sees an output before the commit. Positions are the session's own business: they are taken as
        they come, also when they go back (to read a log anew).

        Returns:
            The offsets of the outputs, in order.

        Raises:
            Fenced: a newer session has taken over.
            MessageTooLarge: an output is over `MAX_MESSAGE_BYTES`; nothing was appended.
            BusUnavailable: nothing was appended.
            OutcomeUnknown: it may have been appended: open the session anew and compare positions.
            BusError: a topic or partition does not exist, or a position cannot be kept; nothing was appended.
        """

    async def close(self) -> None:
        """End the session; its name may be opened again. Idempotent."""


@runtime_checkable
class TellsPositions(Protocol):
    """A bus that knows how far a session has come without taking the session over."""

    async def committed(self, session: str, partition: Partition) -> Position:
        """The committed position; `Position(0)` when there is none yet."""


@runtime_checkable
class LendsSessions(TellsPositions, Protocol):
    """A bus with sessions that can be held by another process, through this one.

    The log itself knows the holder, by its epoch, and the number of its last commit. So a process in between may end at
    any time, and a request that comes a second time, because the answer to the first was lost, changes nothing.
    """

    async def lend_session(self, name: str, claim: str) -> int:
        """Take over the session of this name.

        Args:
            claim: a text of the new holder's own, never used before. The same claim again, before any other, is the
                same request.

        Returns:
            The epoch of the new holder.
        """

    async def commit_lent(
        self,
        name: str,
        epoch: int,
        number: int,
        outputs: Sequence[Outgoing],
        positions: Mapping[Partition, Position],
    ) -> list[int]:
        """As `Session.commit`, for the holder of this epoch.

        Args:
            number: 1 for the holder's first commit, one more for each later one. The last one again is the same
                commit: its outputs are not looked at, and its offsets are returned.

        Raises:
            BusError: another number is due, besides all that `Session.commit` raises.
        """


@runtime_checkable
class TellsNodeKeys(Protocol):
    """A bus that leads through the cell's gateway, which has a secret for each node."""

    async def node_key(self, node_id: str) -> bytes | None:
        """The secret with which the gateway asks this node's agent for files of jobs; None: it asks for none.

        Raises:
            Refused: the token is not for this node.
            BusUnavailable: the gateway cannot be reached.
        """


@runtime_checkable
class TellsLeases(Protocol):
    """A bus that leads through the cell's gateway, which has the terms of nodes' leases."""

    async def lease(self) -> tuple[float, float] | None:
        """The cell's node time-out and lease margin in seconds (`libs/node/lease.py`); None: it is too old to say.

        Raises:
            BusUnavailable: the gateway cannot be reached.
        """


@runtime_checkable
class TakesTokens(Protocol):
    """A bus that can go on with another token of its user."""

    def use_token(self, token: str) -> None:
        """Send this one from now on; see `connect`.

        Raises:
            BusError: the token is damaged.
        """


@dataclass(frozen=True)
class Room:
    """What a disk has left."""

    path: str
    """A file or a folder on it."""
    free_bytes: int
    """Of use to this process."""


@runtime_checkable
class TellsRoom(Protocol):
    """A bus that knows the disk which holds its log."""

    async def room(self) -> Room:
        """What the log's disk has left.

        Raises:
            BusUnavailable: the disk does not tell.
        """


@runtime_checkable
class TellsTime(Protocol):
    """A bus that can be asked for the time by the log's clock, between two messages."""

    async def now_s(self) -> float | None:
        """Seconds since the epoch; None where the log does not tell.

        Raises:
            BusUnavailable: cannot be reached.
        """


class Bus(Protocol):
    """One cell's log."""

    cell: str

    async def create_topics(self, layout: TopicLayout) -> None:
        """Create the cell's topics with the settings of DESIGN section 2. Existing ones are left as they are."""

    async def partitions(self, topic: Topic) -> list[Partition]:
        """The partitions of a topic, by index.

        Raises:
            BusError: the topic does not exist.
        """

    async def open_session(self, name: str) -> Session:
        """Take over the session of this name; whatever an older holder left unfinished is undone."""

    async def reader(self, starts: Mapping[Partition, int]) -> Reader:
        """A reader from these offsets on; 0 is the beginning, or the oldest message that is still kept.

        Raises:
            BusError: a partition does not exist.
        """

    async def append(self, outputs: Sequence[Outgoing]) -> None:
        """Append outside of any session, for high-rate data (telemetry, logs): in order, at least once.

        Raises:
            MessageTooLarge: an output is over `MAX_MESSAGE_BYTES`; nothing was appended.
            BusUnavailable: cannot be reached; some of the outputs may have been appended.
            BusError: a topic does not exist; nothing was appended.
        """

    async def end_offset(self, partition: Partition) -> int:
        """The offset after the last committed message; 0 when there was none.

        Whatever was committed before this was called is counted.
        """

    async def begin_offset(self, partition: Partition) -> int:
        """No message is kept before this offset, and every one from it on is; 0 while nothing was ever removed."""

    async def archived(self) -> Archived | None:
        """The note of the latest `give_back`; None while there was none."""

    async def give_back(self, befores: Mapping[Partition, int], archived: Archived) -> None:
        """Remove the messages before these offsets for good; the offsets of the others stay what they are.

        The note is on the log before the first message is gone. A partition that begins later already stays as it
        is; a call that was broken off can be repeated.

        Raises:
            BusUnavailable: cannot be reached; some of the messages may be gone.
            BusError: an offset lies behind its partition's end; nothing was removed.
        """

    async def close(self) -> None:
        """Give back connections and files, those of its sessions and readers too. Idempotent."""
