"""How hard the property tests try."""

from __future__ import annotations

from libs.testing.effort import searching

whole_system = searching(by_default=10, thorough=150)

under_faults = searching(by_default=20, thorough=300)
"""For histories in which all faults happen."""

few_examples = searching(by_default=5, thorough=50)
"""For properties of long runs."""
