"""Warnings that hold as long as their subject is there, and are found true at every look."""

from __future__ import annotations

import functools
import logging

log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=4096)
def warn_once(sentence: str) -> None:
    """Log it when it is found true for the first time."""
    log.warning("%s", sentence)
