"""Why a cell cannot be."""

from __future__ import annotations


class CellError(Exception):
    """The cell cannot be started, or not go on; the message says what was found, and a process's last words."""
