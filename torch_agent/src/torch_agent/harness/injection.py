"""Waits until torch has been imported, and hooks in then."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType

BEGINS = "torch-begins"
"""A file in the folder of pages: a process of the task has begun to import torch, which may take a minute."""


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the others find torch, and is told when it has been executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        with suppress(Exception):  # then a pause keeps the GPUs
            os.close(os.open(os.path.join(os.environ["SANJAYA_HARNESS_DIR"], BEGINS), os.O_CREAT | os.O_WRONLY, 0o600))
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenHook(spec.loader)
        return spec


class _ThenHook(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # later readers see the real one
        try:
            from . import hooks

            hooks.install()
        except Exception as error:
            print(f"sanjaya: no mini-batches will be counted: {error!r}", file=sys.stderr)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


def when_torch_is_imported() -> None:
    """Hook in at the end of `import torch`, which may never come."""
    sys.meta_path.insert(0, _AfterTorch())
