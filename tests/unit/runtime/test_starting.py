"""How a service's process starts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAINS = [ROOT / "libs/runtime/__main__.py", *sorted((ROOT / "services").glob("*/__main__.py"))]


@pytest.mark.parametrize("main", MAINS, ids=lambda main: main.parent.name)
def test_garbage_is_looked_for_rarely_before_anything_else_is_imported(main: Path):
    imports = [node for node in ast.parse(main.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
    first, second = (ast.unparse(node) for node in imports[:2])
    assert (first, second) == ("from __future__ import annotations", "import libs.runtime.starting")
