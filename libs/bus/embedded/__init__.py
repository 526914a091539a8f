"""The log in one SQLite file: durable, shared by the processes of one machine, no server."""

from libs.bus.embedded.bus import EmbeddedBus

__all__ = ["EmbeddedBus"]
