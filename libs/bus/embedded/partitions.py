"""The ids that partitions have in the file."""

from __future__ import annotations

import sqlite3

from libs.bus.naming import no_topic
from libs.bus.port import BusError, Partition
from libs.contracts.base import Topic


class PartitionIds:
    """Looks ids up with one connection and remembers them: topics are never cut anew."""

    def __init__(self, connection: sqlite3.Connection, cell: str) -> None:
        self._connection, self._cell = connection, cell
        self._known: dict[Topic, list[int]] = {}
        self._partitions: dict[int, Partition] = {}

    def of(self, topic: Topic) -> list[int]:
        """The ids of a topic's partitions, by index.

        Raises:
            BusError: the topic does not exist.
        """
        if topic not in self._known:
            self._look_up(topic)
        return self._known[topic]

    def one(self, partition: Partition) -> int:
        """The id of one partition.

        Raises:
            BusError: it does not exist.
        """
        ids = self.of(partition.topic)
        if not 0 <= partition.index < len(ids):
            raise BusError(
                f"topic {self._cell}.{partition.topic} has partitions 0 to {len(ids) - 1}, not {partition.index}"
            )
        return ids[partition.index]

    def partition(self, partition_id: int) -> Partition:
        """The partition of an id that was given out before."""
        return self._partitions[partition_id]

    def _look_up(self, topic: Topic) -> None:
        rows = self._connection.execute(
            "SELECT id FROM partitions WHERE cell=? AND topic=? ORDER BY number", (self._cell, topic.value)
        ).fetchall()
        if not rows:
            cells = self._connection.execute("SELECT DISTINCT cell FROM partitions").fetchall()
            raise no_topic(self._cell, topic, (name for (name,) in cells))
        self._known[topic] = [row[0] for row in rows]
        for index, (partition_id,) in enumerate(rows):
            self._partitions[partition_id] = Partition(topic, index)
