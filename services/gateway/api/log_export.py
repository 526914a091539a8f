"""The raw log, for `sanjaya export` and `replay`: control and orders, headers included, archived records first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query, Response

from libs.bus.batches import batches
from libs.bus.port import Partition
from libs.contracts import admission, failure_analysis, introspection, migration, placement, quota, sweeps
from libs.contracts.base import Topic
from libs.inspect.archive import whole_reader
from libs.inspect.extent import has_no_gaps, survey
from libs.inspect.jsonl import header_line, record_line
from libs.inspect.logs import AUDITED, Header
from services.gateway.api.callers import Reader
from services.gateway.api.common import Door, media
from services.gateway.api.streams import NDJSON, stream
from services.gateway.door import Gateway
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/log", tags=["log"], route_class=StrictRoute)

_CORES = (
    admission.OWNER,
    quota.OWNER,
    placement.OWNER,
    introspection.OWNER,
    migration.OWNER,
    failure_analysis.OWNER,
    sweeps.OWNER,
)
"""The services that decide anew in a replay."""
_DOCUMENT = media("`sanjaya-log/1`: a header line, then a line per record.", {NDJSON: {"schema": {"type": "string"}}})


@router.get("/export", operation_id="exportLog", responses=_DOCUMENT)
async def export_log(
    gateway: Door,
    caller: Reader,
    topic: Annotated[list[Topic], Query(description="Default: control and orders.")] = [],  # noqa: B006
) -> Response:
    """The log up to its present end, record by record, as it can be replayed."""
    topics = tuple(dict.fromkeys(topic)) or AUDITED
    extent = await survey(gateway.bus, _CORES, topics)
    header = Header(
        cell=gateway.bus.cell,
        positions=extent.positions,
        created_s=gateway.now(),
        contiguous=has_no_gaps(gateway.settings.bus),
        topics=topics,
    )
    # an archive that cannot be read is a problem document, not a stream that breaks off
    await (await whole_reader(gateway.bus, dict.fromkeys(extent.ends, 0))).close()
    return stream(gateway, _lines(gateway, header, extent.ends), NDJSON)


async def _lines(gateway: Gateway, header: Header, ends: Mapping[Partition, int]) -> AsyncIterator[bytes]:
    """A record that does not come breaks the stream off: a short export must not look like a whole one."""
    yield header_line(header)
    for partition, end in ends.items():
        reader = await whole_reader(gateway.bus, {partition: 0})
        async with aclosing(batches(reader, partition, 0, end)) as found:
            async for batch in found:
                yield b"".join(map(record_line, batch))
