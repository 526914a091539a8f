"""How often the agent has logged an error: an agent that goes on and goes on failing is to be seen from outside."""

from __future__ import annotations

import logging

LONGEST = 300


class Complaints(logging.Handler):
    """Counts what is logged as an error, from when it is attached to a logger."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors = 0
        self.last = ""
        """The last of them, with the exception if there was one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Count it; the words are for people."""
        self.errors += 1
        error = record.exc_info[1] if record.exc_info else None
        told = f"{record.getMessage()}: {type(error).__name__}: {error}" if error is not None else record.getMessage()
        self.last = told[:LONGEST]
