"""How long jobs of a tenant have run, and what it rests on when that is expected of others."""

from __future__ import annotations

REMAINING_WORK, TIME_LIMIT, RESIDUAL_LIFE, TIME_SO_FAR = "remaining_work", "time_limit", "residual_life", "time_so_far"
"""The steps that are left, at the rate that was measured; the rest of a time limit; how long others ran that had run
for as long; as long again as it has run."""
REMEMBERED = 256
"""The last runs of each tenant."""


def remember(ran_s: list[float], seconds: float) -> None:
    """One more of the runs of a tenant has ended, after so long."""
    ran_s.append(seconds)
    del ran_s[:-REMEMBERED]
