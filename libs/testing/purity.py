"""Cores with a watched `decide`: it may change the state by emitting, and in no other way."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from libs.contracts.base import Event
from libs.contracts.envelope import Envelope
from libs.kernel.machine import Machine, Tell
from libs.kernel.service import Service


class DecideMutates(AssertionError):
    """A decide has changed the state otherwise than by what it has emitted."""


class WatchedMachine(Machine[Any]):
    """The same table. After each handling the state must be what folding the outputs onto the state before gives."""

    def __init__(self, machine: Machine[Any]) -> None:
        super().__init__(machine.service)
        self._evolves, self._decides, self._heard = machine._evolves, machine._decides, machine._heard
        self._judge = machine._judge

    def handle(self, state: Any, envelope: Envelope, now_s: float, tell: Tell | None = None) -> list[Event]:
        """As the machine watched.

        Raises:
            DecideMutates: names service and event, and the first field that differs.
        """
        before = msgspec.json.encode(state)
        outputs = super().handle(state, envelope, now_s, tell)
        folded = msgspec.json.decode(before, type=type(state))
        self.refold(folded, envelope, outputs, now_s)
        if msgspec.json.encode(folded) != msgspec.json.encode(state):
            where = _first_difference(msgspec.to_builtins(folded), msgspec.to_builtins(state))
            what = type(envelope.event).__name__
            raise DecideMutates(f"{self.service} changes its state while it decides on {what}: {where}")
        return outputs


def watched(service: Service[Any]) -> Service[Any]:
    """The service with its machine watched."""
    return dataclasses.replace(service, machine=WatchedMachine(service.machine))


def _first_difference(folded: Any, live: Any, path: str = "state") -> str:
    if isinstance(folded, dict) and isinstance(live, dict):
        for key in [*folded, *(key for key in live if key not in folded)]:
            if folded.get(key, ...) != live.get(key, ...):
                return _first_difference(folded.get(key, ...), live.get(key, ...), f"{path}.{key}")
        return f"{path}: order {list(folded)} by its outputs, {list(live)} by deciding"
    return f"{path} is {folded!r} by its outputs, {live!r} by deciding"
