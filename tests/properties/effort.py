"""How hard the property tests try: the same examples every time, unless more are asked for.

`SANJAYA_EXAMPLES=5000 pytest tests/properties` explores at random.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_MORE = os.environ.get("SANJAYA_EXAMPLES")

whole_system = settings(
    max_examples=int(_MORE or 30),
    derandomize=_MORE is None,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

few_examples = settings(whole_system, max_examples=15)
"""For properties of long runs."""
