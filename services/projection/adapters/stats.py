"""The projection's numbers, for metrics and health."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from opentelemetry.metrics import CallbackOptions, Meter, Observation


@dataclass
class Stats:
    """Written by the loop, read by the metrics and the health check."""

    next_offset: int = 0
    """Everything before it is in the read models."""
    building: bool = False
    """A read model is built beside the one that is read; `next_offset` is its position."""
    records: int = 0
    """Stored since the start."""
    lag_s: float = 0.0
    """Age of the newest stored record when it was stored; 0 when nothing waits."""
    on_batch: Callable[[float], None] = field(default=lambda took_s: None)
    """Told the time in s that each batch took to fold and store."""

    def stored(self, next_offset: int, records: int, took_s: float, lag_s: float) -> None:
        """A batch has been stored."""
        self.next_offset, self.lag_s = next_offset, max(lag_s, 0.0)
        self.records += records
        self.on_batch(took_s)

    def idle(self) -> None:
        """Nothing is waiting."""
        self.lag_s = 0.0

    def health(self) -> tuple[bool, dict[str, object]]:
        """For `/healthz`."""
        return True, {"next_offset": self.next_offset, "building": self.building, "lag_s": self.lag_s}


def expose(stats: Stats, meter: Meter) -> None:
    """Publish the numbers; they are read when the port is asked."""

    def reading(value: Callable[[], float]) -> list[Callable[[CallbackOptions], list[Observation]]]:
        return [lambda _: [Observation(value(), {"service": "projection"})]]

    meter.create_observable_counter(
        "sanjaya_records", reading(lambda: stats.records), description="control records read"
    )
    meter.create_observable_gauge(
        "sanjaya_next_offset", reading(lambda: stats.next_offset), description="everything before it is handled"
    )
    meter.create_observable_gauge(
        "sanjaya_projection_lag_seconds", reading(lambda: stats.lag_s), description="age of what was stored last"
    )
    seconds = meter.create_histogram("sanjaya_projection_batch_seconds", unit="s", description="time of one batch")
    stats.on_batch = lambda took_s: seconds.record(took_s, {"service": "projection"})
