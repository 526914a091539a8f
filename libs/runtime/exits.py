"""How a service ends, and why: exit codes of sysexits.h, so that a supervisor can tell the cases apart."""

from __future__ import annotations

OK = 0
USAGE = 64
"""Unknown service, or arguments that make no sense."""
NO_ROOM = 69
"""A disk has no room for what the process has to write: it goes on where it was once there is some, started again."""
CORE_FAILED = 70
"""A control record cannot be decoded or handled. A restart stops at the same record: an operator must look."""
FENCED = 75
"""A newer instance of the service has taken over: this one must not be restarted."""
CONFIG = 78
"""A setting is wrong."""


class StopRequested(Exception):
    """The process was asked to stop while it waited for the log."""


class CoreFailed(Exception):
    """The core cannot go on; the message names the record's place on the log and the cause."""
