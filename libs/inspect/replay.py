"""The states of the cores as a log has recorded them: folded of inputs and decisions, nothing decided again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from libs.contracts.base import Topic
from libs.contracts.envelope import Record
from libs.inspect.refolding import Joined
from libs.kernel.replica import Replica, pass_over
from libs.kernel.service import InvariantViolated, Service


class ReplayViolation(Exception):
    """A state contradicts itself; the message says of which service, after which offset, and how."""


def refold(
    records: Iterable[Record],
    services: Sequence[Service[Any]],
    *,
    until_offset: int | None = None,
    positions: Mapping[str, int] | None = None,
) -> dict[str, Replica[Any]]:
    """{service: its core} after the control records before an offset.

    Args:
        records: from the beginning of the log; those of other topics are passed over. They are read beyond
            `until_offset`, because decisions may stand far behind their causes.
        services: their cores are folded.
        until_offset: inputs from here on are left out; None: up to the end.
        positions: {service: the first record that it has not handled}: later ones are left out, too.

    Raises:
        ReplayViolation: a state contradicts itself.
    """
    replicas = {service.name: Replica(service, pass_over) for service in services}
    joined = {name: Joined() for name in replicas}
    end = 0
    for record in records:
        if record.topic != Topic.CONTROL:
            continue
        envelope, end = record.envelope, record.offset + 1
        for name, replica in replicas.items():
            waiting = joined[name]
            if replica.is_own(envelope) and waiting.expects(envelope.causation_id):
                for handled in waiting.output(envelope):
                    replica.refold(handled.input, handled.outputs)
            if (until_offset is None or record.offset < until_offset) and replica.service.machine.reads(envelope.event):
                waiting.input(envelope, record.offset)
    for name, replica in replicas.items():
        for handled in joined[name].complete(end if positions is None else positions.get(name, end)):
            replica.refold(handled.input, handled.outputs)
    check_invariants(replicas, (end if until_offset is None else min(end, until_offset)) - 1)
    return replicas


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
    """{service: its state} after all records before `offset`, what it has decided on them included."""
    return {name: replica.state for name, replica in refold(records, services, until_offset=offset).items()}
