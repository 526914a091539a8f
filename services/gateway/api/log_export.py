"""The raw log, for `sanjaya export` and `replay`: control and orders, headers included, archived records first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response

from libs.bus.port import Partition, TellsPositions
from libs.contracts import admission, failure_analysis, migration, placement, quota
from libs.contracts.base import Topic
from libs.inspect.archive import whole_reader
from libs.inspect.jsonl import header_line, record_line
from libs.inspect.logs import AUDITED, Header
from services.gateway.adapters.intake import CONTROL
from services.gateway.api.common import Door, Reader, media
from services.gateway.api.streams import NDJSON, stream
from services.gateway.door import Gateway
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/log", tags=["log"], route_class=StrictRoute)

_BATCH = 500
_CORES = (admission.OWNER, quota.OWNER, placement.OWNER, migration.OWNER, failure_analysis.OWNER)
"""The services whose decisions a replay derives anew."""
_WITHOUT_GAPS = ("sqlite:", "memory:")
"""Logs whose offsets have no gaps."""
_SILENCE_S = 10.0
_DOCUMENT = media("`sanjaya-log/1`: a header line, then a line per record.", {NDJSON: {"schema": {"type": "string"}}})


@router.get("/export", operation_id="exportLog", responses=_DOCUMENT)
async def export_log(
    gateway: Door,
    who: Reader,
    topic: Annotated[list[Topic], Query(description="Default: control and orders.")] = [],  # noqa: B006
) -> Response:
    """The log up to its present end, record by record, as it can be replayed.

    The services' positions are asked first and control's end last: so what a service has handled is certainly
    exported, and so is the decision behind every order.
    """
    topics = tuple(dict.fromkeys(topic)) or AUDITED
    positions: dict[str, int] | None = None
    if isinstance(gateway.bus, TellsPositions):
        positions = {name: (await gateway.bus.committed(name, CONTROL)).next_offset for name in _CORES}
    ends: dict[Partition, int] = {}
    for name in sorted(topics, key=lambda name: name is Topic.CONTROL):
        for partition in await gateway.bus.partitions(name):
            ends[partition] = await gateway.bus.end_offset(partition)
    header = Header(
        cell=gateway.bus.cell,
        positions=positions,
        created_s=gateway.now(),
        contiguous=gateway.settings.bus.startswith(_WITHOUT_GAPS),
        topics=topics,
    )
    in_order = sorted(ends, key=lambda partition: (topics.index(partition.topic), partition.index))
    # an archive that cannot be read is a problem document, not a stream that breaks off
    await (await whole_reader(gateway.bus, dict.fromkeys(in_order, 0))).close()
    return stream(gateway, _lines(gateway, header, {partition: ends[partition] for partition in in_order}), NDJSON)


async def _lines(gateway: Gateway, header: Header, ends: dict[Partition, int]) -> AsyncIterator[bytes]:
    """A record that does not come breaks the stream off: a short export must not look like a whole one."""
    yield header_line(header)
    for partition, end in ends.items():
        reader = await whole_reader(gateway.bus, {partition: 0})
        try:
            position = 0
            while position < end:
                messages = await reader.next_batch(_BATCH, _SILENCE_S)
                if not messages:
                    raise TimeoutError(
                        f"{partition.topic}/{partition.index}@{position}: nothing came for {_SILENCE_S:g} s"
                    )
                yield b"".join(record_line(message) for message in messages if message.offset < end)
                position = messages[-1].offset + 1
        finally:
            await reader.close()
