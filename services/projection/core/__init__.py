"""From events to row changes. Pure: the SQL read models and any in-memory view are made by the same fold."""

from services.projection.core import arrivals, attempts, cluster, groups, outcomes, sweeps
from services.projection.core.fold import HANDLERS, apply, prefetch
from services.projection.core.ignored import IGNORED
from services.projection.core.rows import Rows

SUBJECTS = (arrivals, attempts, cluster, groups, outcomes, sweeps)
"""The modules that fill the fold's table when they are imported."""

__all__ = ["HANDLERS", "IGNORED", "SUBJECTS", "Rows", "apply", "prefetch"]
