"""From events to row changes. Pure: the SQL read models and any in-memory view are made by the same fold."""

from services.projection.core import arrivals, attempts, cluster, outcomes, sweeps
from services.projection.core.fold import apply, prefetch
from services.projection.core.rows import Rows

HANDLERS = (arrivals, attempts, cluster, outcomes, sweeps)
"""The modules whose import fills the fold's table."""

FOLD_VERSION = 3
"""Raised when the fold makes other rows of the same events: read models of another version are made anew.

Rows keep whole events and specifications, so a new field there makes other rows, and so does an upcast.
"""

__all__ = ["FOLD_VERSION", "HANDLERS", "Rows", "apply", "prefetch"]
