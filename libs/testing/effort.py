"""How hard searches at random try: the same few examples in every run, and with SANJAYA_THOROUGH many.

`SANJAYA_EXAMPLES=5000 pytest tests/properties` gives each search so many, other ones in each run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from libs.testing.thorough import THOROUGH

_MORE = os.environ.get("SANJAYA_EXAMPLES")
PROFILE = "sanjaya"


def searching(by_default: int, thorough: int) -> settings:
    """Settings of one search: how many examples it tries. It takes the time that it takes, on any machine."""
    return settings(
        max_examples=int(_MORE or (thorough if THOROUGH else by_default)),
        derandomize=_MORE is None,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def load_profile() -> None:
    """Settings for searches that choose none; call before tests are imported."""
    settings.register_profile(PROFILE, searching(by_default=50, thorough=500))
    settings.load_profile(PROFILE)
