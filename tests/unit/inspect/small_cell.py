"""A small log with a bit of everything, and ways to tamper with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec

from libs.bus.port import Message
from libs.contracts import wire
from libs.inspect.logs import Header, Log
from libs.inspect.verify import Verification, verify
from libs.sim.options import FaultKind
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario, log_of
from services.roster import SERVICES


@cache
def small_cell() -> Simulation:
    """Eight jobs on two servers: one is too large, one cancelled, one moved, one loses its node."""
    scenario = Scenario().servers(2, v100=4).options(start_delay_s=1.0, stop_delay_s=1.0)
    scenario.tenant("default", 6).job("gang", 4, runs_s=50.0).job("small", runs_s=30.0).job("huge", 9)
    scenario.job("long", 2, at=60.0, runs_s=400.0, max_retries=1).job("late", 3, at=65.0, runs_s=20.0)
    scenario.job("gone", at=70.0, runs_s=500.0).cancel("gone", at=90.0).pause("long", at=75.0, until=80.0)
    scenario.drain("v100-000", at=85.0, until=150.0)
    scenario.fault(FaultKind.CRASH, "v100-001", at=300.0, for_s=60.0)
    return scenario.run(SERVICES)


def messages() -> list[Message]:
    """Its log."""
    return list(log_of(small_cell()).messages)


def header(**fields: Any) -> Header:
    """The header of its log, with other values."""
    return msgspec.structs.replace(log_of(small_cell()).header, **fields)


def audit(tampered: Iterable[Message], **fields: Any) -> Verification:
    """What the audit says to these messages."""
    return verify(Log(header(**fields), list(tampered)), SERVICES)


def headers_of(message: Message) -> dict[str, str]:
    """The headers as text."""
    return {name: value.decode() for name, value in message.headers}


def with_header(message: Message, name: str, value: str) -> Message:
    """The message with one header changed."""
    return replace(message, headers=[(n, value.encode() if n == name else v) for n, v in message.headers])


def with_data(message: Message, data: Any, *, forged: bool = False) -> Message:
    """The message with other data; `forged`: with a digest that fits."""
    changed = replace(message, value=msgspec.json.encode(data))
    return sealed(changed) if forged else changed


def sealed(message: Message) -> Message:
    """The message with a digest that fits."""
    return with_header(message, "ce_digest", wire.digest(dict(message.headers), message.value))


def renumbered(kept: Sequence[Message]) -> list[Message]:
    """Offsets without gaps again, per partition."""
    ends: dict[Any, int] = {}
    out = []
    for message in kept:
        offset = ends.get(message.partition, 0)
        ends[message.partition] = offset + 1
        out.append(replace(message, offset=offset))
    return out


def mutations(value: Any) -> list[Any]:
    """Other values of the same kind."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1]
    if isinstance(value, str):
        return [value + "x"]
    if value is None:
        return [1]
    if isinstance(value, list):
        return [[*value[:-1], *(mutations(value[-1])[:1])] if value else ["x"]]
    return [{**value, name: changed} for name, item in list(value.items())[:1] for changed in mutations(item)[:1]]
