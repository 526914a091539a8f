"""Where the pages that training processes write (harness/page.py) have what, in every version there has been.

A process keeps the harness that it was started with. An agent of newer code therefore meets pages of older versions,
and reads each by the layout of its version. The first 16 bytes are the same in all versions, for ever: the magic
number, the version, and the sequence number that tells a whole page from one that is being written; so is the size.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

LARGEST = 1 << 53
"""No count and no number of bytes on a page is larger; the page lies in reach of the script, which may write there."""


@dataclass(frozen=True)
class Part:
    """One part of a page: where it begins, its values, and their names in the same order; `_` names padding."""

    at: int
    values: struct.Struct
    names: tuple[str, ...]

    def read(self, data: bytes) -> dict[str, Any]:
        """{name: value}.

        Raises:
            ValueError: a value is not possible.
        """
        found = dict(zip(self.names, self.values.unpack_from(data, self.at), strict=True))
        found.pop("_", None)
        for name, value in found.items():
            if name != "loss" and not (math.isfinite(value) and abs(value) <= LARGEST):
                raise ValueError(f"{name} is {value}")
        return found


@dataclass(frozen=True)
class Layout:
    """Where a version of the page has what; None: that version does not have the part."""

    body: Part
    acknowledged: Part | None = None
    handover: Part | None = None
    meeting: Part | None = None
    rhythm: Part | None = None
    signs: Part | None = None
    memory: Part | None = None
    gate: Part | None = None


_BODY = Part(
    16,
    struct.Struct("<IiiIQdddQQ"),
    (
        "pid",
        "rank",
        "world_size",
        "_",
        "minibatches_total",
        "last_boundary_s",
        "minibatch_mean_s",
        "loss",
        "memory_peak_bytes",
        "memory_min_bytes",
    ),
)
_ACKNOWLEDGED = Part(
    512,
    struct.Struct("<QQQddd"),
    ("turn", "bytes_parked", "bytes_left", "park_s", "unpark_s", "parked_at_s"),
)
_HANDOVER_3 = Part(
    1024,
    struct.Struct("<???Q?iQdd"),
    ("movable", "ready", "restored", "saved", "save_failed", "save_fd", "save_bytes", "save_s", "load_s"),
)
_HANDOVER_4 = Part(1024, struct.Struct("<???Q?iQdd?"), (*_HANDOVER_3.names, "resizable"))
_MEETING = Part(2048, struct.Struct("<I"), ("group_size",))
_RHYTHM = Part(2560, struct.Struct("<dI"), ("p99_s", "nonfinite"))
_SIGNS = Part(3072, struct.Struct("<Q"), ("signs",))
_MEMORY = Part(
    3200,
    struct.Struct("<QQQQQQ"),
    ("applied", "device_bytes", "cached_bytes", "host_bytes", "minibatch_host_bytes", "demand_bytes"),
)
_GATE = Part(
    3584,
    struct.Struct("<QdddQ"),
    ("gates", "spacing_p99_s", "closed_s", "last_minibatch_s", "closed_minibatches"),
)

LAYOUTS: dict[int, Layout] = {
    1: Layout(_BODY),
    2: Layout(_BODY, _ACKNOWLEDGED),
    3: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_3),
    4: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4),
    5: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING),
    6: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING, _RHYTHM, _SIGNS),
    7: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING, _RHYTHM, _SIGNS, _MEMORY, _GATE),
}
"""{version: layout}. A row never changes; a change to harness/page.py is a new version, and a row more."""
