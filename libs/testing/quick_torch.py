"""Import in a script of a test that trains, before its first step: torch then does not import its compiler.

An optimizer's first step imports all of `torch._dynamo`, only to keep it away from functions that are not being
compiled. That takes as long as everything else that a short script does. Scripts of several ranks (which ask the
compiler for a setting) and the one that uses torch.compile have the real one, and all with SANJAYA_THOROUGH.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

from libs.testing.thorough import THOROUGH


def without_compiler() -> None:
    """Put a module in the compiler's place that knows what optimizers ask of it."""
    stand_in = ModuleType("torch._dynamo")
    stand_in.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
    stand_in.graph_break = lambda *_, **__: None  # type: ignore[attr-defined]
    sys.modules.setdefault("torch._dynamo", stand_in)


def inject_path() -> str:
    """To be put on PYTHONPATH for scripts that are run as they are."""
    return str(Path(__file__).parent / "inject")


if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not THOROUGH:
    without_compiler()
