"""How much slow tests do: by default what proves a thing once, with SANJAYA_THOROUGH in the environment all of it."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

THOROUGH = "SANJAYA_THOROUGH" in os.environ


def cases(*by_default: T, thorough: tuple[T, ...]) -> list[T]:
    """The cases of a parametrised test: the first ones always, the others only on request."""
    return [*by_default, *(thorough if THOROUGH else ())]
