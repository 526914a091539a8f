"""CI runs the thorough tests when anything that they depend on has changed."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import thorough

FILES = (
    "libs/bus/port.py",
    "services/placement/core/state.py",
    "torch_agent/src/torch_agent/shim.py",
    "requirements.lock",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small tree, with a record that is about it."""
    for name in (*FILES, "libs/cli/main.py", "libs/bus/README.md", "tests/unit/test_a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"about {name}\n")
    (tmp_path / "tests/unit/test_b.py").write_text("from hypothesis import given\n")
    (tmp_path / thorough.RECORD).write_text(json.dumps({"digest": thorough.digest(tmp_path)}))
    return tmp_path


@pytest.mark.parametrize("name", [*FILES, "tests/unit/test_b.py"])
def test_a_change_of_what_they_depend_on_calls_for_them(root: Path, name: str):
    assert thorough.passed(root)
    (root / name).write_text("changed")
    assert not thorough.passed(root)


@pytest.mark.parametrize("name", ["libs/bus/new.py", "libs/bus/local_broker/server.properties.in"])
def test_so_does_a_new_file(root: Path, name: str):
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).touch()
    assert not thorough.passed(root)


@pytest.mark.parametrize(
    "name", ["libs/cli/main.py", "libs/bus/README.md", "tests/unit/test_a.py", "libs/bus/__pycache__/port.pyc"]
)
def test_what_they_do_not_depend_on_does_not(root: Path, name: str):
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("changed")
    assert thorough.passed(root)


def test_without_a_record_they_have_not_passed(root: Path):
    (root / thorough.RECORD).unlink()
    assert not thorough.passed(root)


def test_everything_that_these_trees_import_is_among_them():
    trees = (*thorough.ABOUT, *thorough.RESTS_ON)
    for tree in trees:
        assert (thorough.ROOT / tree).is_dir(), tree
        for path in (thorough.ROOT / tree).rglob("*.py"):
            outside = [room for room in imported_rooms(path) if room not in trees]
            assert not outside, f"{path}: {outside}"


def imported_rooms(path: Path) -> Iterator[str]:
    """Rooms of this product that a file imports, `libs/bus` for example."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            top, *rest = name.split(".")
            if top in ("libs", "services") and rest:
                yield f"{top}/{rest[0]}"
