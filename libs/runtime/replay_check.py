"""While a restarted core replays: does it decide again what it decided then?

It may not when the code has changed since. Then its state is not the one that the log tells of, and somebody
should know: `sanjaya replay --verify` says where it differs.
"""

from __future__ import annotations

import logging
from typing import Any

from libs.bus.port import Message
from libs.contracts import wire
from libs.contracts.envelope import Envelope
from libs.kernel.service import Service
from libs.runtime.log import fields

log = logging.getLogger(__name__)


class ReplayCheck:
    """Compares the decisions of a replay with those on the log, by id and digest.

    Only what is met on both sides within the replay is compared: a decision may stand on the log behind
    the position at which the replay ends, or have its cause before the snapshot.
    """

    def __init__(self, service: Service[Any]) -> None:
        self._own_types = frozenset(cls.wire_type.encode() for cls in (*service.emits, *service.requests))
        self._expected: dict[bytes, bytes] = {}
        self._differences = 0
        self._first = ""

    def derived(self, outputs: list[Envelope]) -> None:
        """The replay decided these."""
        for envelope in outputs:
            if envelope.event.topic == "control":
                headers = dict(wire.encode(envelope)[0])
                self._expected[headers["ce_id"]] = headers["ce_digest"]

    def on_log(self, message: Message) -> None:
        """This stands on the log."""
        headers = dict(message.headers)
        if headers["ce_type"] not in self._own_types:
            return
        expected = self._expected.pop(headers.get("ce_id", b""), None)
        if expected is not None and expected != headers.get("ce_digest"):
            self._differences += 1
            self._first = self._first or f"control/0@{message.offset}"

    def report(self) -> int:
        """Log what was found; returns the number of differences."""
        if self._differences:
            log.warning(
                "the replay derived other decisions than stand on the log: run `sanjaya replay --verify`",
                extra=fields(differences=self._differences, first=self._first),
            )
        self._expected.clear()
        return self._differences
