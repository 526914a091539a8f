"""From a bus URL to a bus."""

from __future__ import annotations

from libs.bus.port import Bus, BusError


async def connect(url: str, cell: str, token: str = "") -> Bus:
    """The bus at `url` for one cell. Adapters are imported when they are asked for.

    Args:
        url: `sqlite:///path/log.db[?mode=ro]`, `kafka://host:port[,host:port][?options]`, `https://host:port` of the
            cell's gateway, `memory:` for a log of this bus alone, or `memory:<name>` for one that is shared within this
            process.
        cell: the cell's name; prefix of its topics.
        token: for the gateway; the other logs ask for none.

    Raises:
        BusError: the URL cannot be understood, or what it names cannot be used; the message says why.
        Refused: the gateway does not take the token, or has another certificate than the token says.
        BusUnavailable: it cannot be reached now.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from libs.bus.embedded import EmbeddedBus

        return await EmbeddedBus.connect(url, cell)
    if scheme == "kafka":
        from libs.bus.kafka import KafkaBus

        return await KafkaBus.connect(url, cell)
    if is_gateway(url):
        from libs.bus.http.bus import HttpBus

        return await HttpBus.connect(url, cell, token)
    if scheme == "memory":
        from libs.bus.memory import MemoryBus, MemoryLog

        return MemoryBus(cell, MemoryLog.named(url.removeprefix("memory:")))
    raise BusError(f"bus url {url!r}: expected sqlite:///path/log.db, kafka://host:port, https://host:port or memory:")


def is_gateway(url: str) -> bool:
    """Whether a bus URL leads through a cell's gateway."""
    return url.partition(":")[0] in ("https", "http")
