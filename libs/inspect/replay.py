"""Replay: run the cores over a recorded log and see where they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from libs.contracts.base import Topic
from libs.contracts.envelope import Record
from libs.kernel.replica import Replica
from libs.kernel.service import InvariantViolated, Service

CHECK_EVERY = 1000
"""Control records between two checks of the states' invariants."""


class ReplayViolation(Exception):
    """A state contradicts itself; the message says whose, after which offset, and how."""


@dataclass(frozen=True)
class Replayed:
    """Where the cores are after the last record."""

    replicas: dict[str, Replica[Any]]
    events: int
    """Control records."""
    decisions: int
    """Events that the cores have decided on them, orders included."""

    @property
    def state_hashes(self) -> dict[str, str]:
        """{service: SHA-256 of its state}."""
        return {name: replica.state_hash for name, replica in self.replicas.items()}


def replay(
    records: Iterable[Record],
    services: Sequence[Service[Any]],
    *,
    until_offset: int | None = None,
    check_every: int = CHECK_EVERY,
) -> Replayed:
    """Feed every core with the control records.

    Args:
        records: from the beginning of the log; those of other topics are passed over.
        services: whose cores are run.
        until_offset: stop before this offset; None: at the end.
        check_every: check the invariants after so many records, and once at the end.

    Raises:
        ReplayViolation: a state contradicts itself.
    """
    replicas = {service.name: Replica(service) for service in services}
    events = decisions = 0
    offset = -1
    for record in records:
        if record.topic != Topic.CONTROL:
            continue
        if until_offset is not None and record.offset >= until_offset:
            break
        offset = record.offset
        decisions += sum(len(replica.step(record)) for replica in replicas.values())
        events += 1
        if events % check_every == 0:
            check_invariants(replicas, offset)
    check_invariants(replicas, offset)
    return Replayed(replicas, events, decisions)


def check_invariants(replicas: dict[str, Replica[Any]], offset: int) -> None:
    """Let every core check its state.

    Raises:
        ReplayViolation: one of them contradicts itself.
    """
    for name, replica in replicas.items():
        try:
            replica.check()
        except InvariantViolated as violation:
            raise ReplayViolation(f"{name}, after control/0@{offset}: {violation}") from violation


def state_at(records: Iterable[Record], services: Sequence[Service[Any]], offset: int) -> dict[str, Any]:
    """{service: its state} after all records before `offset`."""
    replayed = replay(records, services, until_offset=offset)
    return {name: replica.state for name, replica in replayed.replicas.items()}
