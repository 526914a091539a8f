"""What has come so far, record by record: which jobs have arrived, and how far expected starts were off."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from libs.contracts.catalogue import TERMINAL
from libs.contracts.envelope import Record
from libs.forecast import errors
from libs.forecast.arrivals import Arrival, Arrivals
from libs.forecast.branch import started_by


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of the past while nothing follows the log."""

    next_offset: int
    """Records of control before it are in here."""
    track: errors.Kept = errors.Kept()
    arrived: list[Arrival] = []


class Past:
    """Follows control.

    Args:
        kept: of an earlier one, which goes on where that was.
    """

    def __init__(self, kept: Kept | None = None) -> None:
        self.next_offset = kept.next_offset if kept is not None else 0
        self.track = errors.Track(kept.track if kept is not None else None)
        self.arrivals = Arrivals(kept.arrived if kept is not None else ())

    @classmethod
    def since(cls, kept: Kept | None, offset: int) -> Past:
        """One that follows control from this offset on, or from where an earlier one was if that is not before.

        Whether jobs of which something was said have started before the offset is not known: that counts for nothing.
        """
        if kept is not None and kept.next_offset < offset:
            kept = replace(kept, next_offset=offset, track=replace(kept.track, said={}))
        return cls(kept)

    def take(self, record: Record) -> None:
        """The next record of control; one that it has seen changes nothing."""
        if record.offset < self.next_offset:
            return
        self.next_offset, envelope = record.offset + 1, record.envelope
        self.arrivals.take(envelope)
        for job_id in started_by(envelope.event):
            self.track.started(job_id, envelope.time_s)
        if type(envelope.event) in TERMINAL:
            self.track.ended(envelope.event.subject)

    @property
    def kept(self) -> Kept:
        """What is to be known when the log is followed again."""
        return Kept(next_offset=self.next_offset, track=self.track.kept, arrived=self.arrivals.latest)
