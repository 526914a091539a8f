"""The rules of a service have a name: a digest of everything that what it decides depends on.

Two services with the same digest decide the same on the same log; the audit decides again only what was decided
under rules that it has at hand. Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import libs

_ROOT = Path(libs.__file__).resolve().parent.parent
_OURS = ("libs", "services")


@cache
def rules_of(*modules: str) -> str:
    """The digest of the rules that modules of this product give, e.g. `services.placement.service`: 32 hex digits.

    It covers the syntax trees, without docstrings, of the modules and of every module of this product that they import,
    however far; the YAML files of the packages among these (rules as data); and the versions of the packages that
    these import (solver, sampler). Syntax trees differ between versions of Python, and so do digests.

    Raises:
        FileNotFoundError: there is no such module.
    """
    h = hashlib.blake2b(digest_size=16)
    trees, packages = _closure(modules)
    for name, tree in sorted(trees.items()):
        h.update(f"{name}\0{tree}\0".encode())
    for package in sorted(packages):
        h.update(f"{package}=={_version(package)}\0".encode())
    return h.hexdigest()


def _closure(first: tuple[str, ...]) -> tuple[dict[str, str], set[str]]:
    """{module: digest of its syntax tree} of all that the first ones lead to, and the packages that they import."""
    found: dict[str, str] = {}
    packages: set[str] = set()
    waiting = list(first)
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if module in found or path is None:
            continue
        digest, imported = _read(path)
        found[module] = digest
        for name in imported:
            top = name.partition(".")[0]
            if top in _OURS:
                waiting.append(name)
            elif top not in sys.stdlib_module_names:
                packages.add(top)
    if missing := [module for module in first if module not in found]:
        raise FileNotFoundError(f"{', '.join(missing)}: no such module under {_ROOT}")
    return found, packages


@cache
def _read(path: Path) -> tuple[str, tuple[str, ...]]:
    """Digest of a file's syntax tree, of a package's with its YAML files; and the modules that it imports or names."""
    tree = ast.parse(path.read_bytes())
    imported = tuple(_imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    h = hashlib.blake2b(ast.dump(tree).encode(), digest_size=16)
    if path.name == "__init__.py":
        for data in sorted(path.parent.glob("*.yaml")):
            h.update(data.name.encode() + b"\0" + data.read_bytes())
    return h.hexdigest(), imported


def _is_text(node: ast.stmt) -> bool:
    """A docstring, of a field as well: a string that stands alone does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # a name may be a module


def _path(module: str) -> Path | None:
    """The file of a module; None for a name that is no module."""
    base = _ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a distribution of another name; its version stands in the lock file
        return ""
