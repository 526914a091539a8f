"""From a bus URL to a bus."""

from __future__ import annotations

from urllib.parse import urlsplit

from libs.bus.port import Bus, BusError


async def connect(url: str, cell: str) -> Bus:
    """The bus at `url` for one cell. Adapters are imported when they are asked for.

    Args:
        url: `sqlite:///path/log.db[?mode=ro]`, `kafka://host:port[,host:port][?options]`, or `memory:`.
        cell: the cell's name; prefix of its topics.

    Raises:
        BusError: the URL cannot be understood; the message says what was expected.
    """
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from libs.bus.embedded import EmbeddedBus

        return await EmbeddedBus.connect(url, cell)
    if scheme == "kafka":
        from libs.bus.kafka import KafkaBus

        return await KafkaBus.connect(url, cell)
    if scheme == "memory":
        from libs.bus.memory import MemoryBus

        return MemoryBus(cell)
    raise BusError(f"bus url {url!r}: expected sqlite:///path/log.db, kafka://host:port or memory:")
