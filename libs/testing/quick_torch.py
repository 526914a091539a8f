"""Import in a script of a test that trains, before torch: torch then does half of what it would.

An optimizer's first step, and DistributedDataParallel, import all of `torch._dynamo`, only to keep it away from
functions that are not being compiled; that takes as long as everything else that a short script does. Collections of
garbage, while hundreds of thousands of objects are made that all stay, take a sixth of the rest. Some scripts are to
meet torch as it is and do not import this; with SANJAYA_THOROUGH it does nothing, and all of them meet it so.

Private parts of torch, as they are in 2.4 to 2.15.
"""

import gc
import os
import sys
from pathlib import Path
from types import ModuleType

from libs.testing.thorough import THOROUGH

ALLOCATIONS = 50_000
"""Between two collections of young objects; Python's own number is 700."""


def without_compiler() -> None:
    """Put modules in the compiler's place that know what optimizers and process groups ask of it."""
    compiler = _stand_in("torch._dynamo")
    compiler.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
    compiler.graph_break = lambda *_, **__: None  # type: ignore[attr-defined]
    rules = compiler.trace_rules = _stand_in("torch._dynamo.trace_rules")  # type: ignore[attr-defined]
    rules.clear_lru_cache = lambda: None  # type: ignore[attr-defined]
    utils = compiler.utils = _stand_in("torch._dynamo.utils")  # type: ignore[attr-defined]
    utils.get_optimize_ddp_mode = lambda: "no_optimization"  # type: ignore[attr-defined]


def _stand_in(name: str) -> ModuleType:
    module = ModuleType(name)
    return sys.modules.setdefault(name, module)


def environment() -> dict[str, str]:
    """For scripts that are run as they are: each Python process with these variables imports this at its start."""
    if THOROUGH:
        return {}
    path = (str(Path(__file__).parent / "inject"), os.environ.get("PYTHONPATH"))
    return {"PYTHONPATH": os.pathsep.join(filter(None, path))}


if not THOROUGH:
    without_compiler()
    gc.set_threshold(ALLOCATIONS)
