"""Finds the harness by path: a training process may run on an interpreter that does not have it installed."""

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

NAME = "_sanjaya_harness"


def part(name: str) -> ModuleType:
    """One of the harness's modules, e.g. `job`."""
    if NAME not in sys.modules:
        _load()
    return import_module(f"{NAME}.{name}")


def _load() -> None:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = spec_from_file_location(NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    sys.modules[NAME] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
