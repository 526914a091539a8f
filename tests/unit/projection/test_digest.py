"""The read model's digest covers whatever its rows depend on: a changed fold makes them anew."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from services.projection.digest import read_model_digest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code, to be changed."""
    folder = tmp_path_factory.mktemp("code")
    for name in ("libs", "services"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    return folder


def digest(folder: Path) -> str:
    """The digest that the code in the folder gives to its read models."""
    code = "from services.projection.digest import read_model_digest; print(read_model_digest())"
    command = [sys.executable, "-B", "-c", code]
    env = {"PYTHONPATH": str(folder)}
    run = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("module", "line", "is_other"),
    [
        ("libs/lifecycle/fold.py", "NEW = 1", True),
        ("libs/lifecycle/fold.py", "# a comment", False),
        ("libs/inspect/story.py", "NEW = 1", False),
    ],
)
def test_a_changed_fold_is_another_digest(copy: Path, module: str, line: str, is_other: bool):
    path = copy / module
    text = path.read_text()
    try:
        path.write_text(f"{text}\n{line}\n")
        assert (digest(copy) != read_model_digest()) is is_other
    finally:
        path.write_text(text)
