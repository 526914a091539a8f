"""The log in one SQLite file: durable, shared by the processes of one machine, no server.

`bus` is the adapter; behind it `writer` and `lookup` do what is done to the file, each in a thread of its own,
`keeper` looks after the file's size, and `doorbell` tells other processes that something was appended.
The file must be on a local disk: SQLite's write-ahead log needs memory shared by all its processes.
"""

from libs.bus.embedded.bus import EmbeddedBus

__all__ = ["EmbeddedBus"]
