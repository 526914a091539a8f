"""What a study has measured, as a file (`measured/1`, JSON): enough to judge every claim again without its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from libs.studies.reproduce.comparing import Value
from libs.studies.reproduce.study import Measured

FORMAT = "measured/1"
KEPT = Path(__file__).with_name("measured")
"""What the program's own tests and documentation judge: a file per paper and size."""


def write_measured(measured: Measured, size: str, file: Path) -> None:
    """Write the values of every claim, one line each; the same values give the same bytes."""
    lines = [f"  {json.dumps(claim)}: {json.dumps(arms)}" for claim, arms in measured.items()]
    head = f'{{"format": "{FORMAT}", "size": {json.dumps(size, ensure_ascii=False)}, "claims": {{\n'
    file.write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


def read_measured(file: Path) -> Measured:
    """What `write_measured` has written."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if document.get("format") != FORMAT:
        raise ValueError(f"{file}: format {document.get('format')!r}; expected {FORMAT!r}")
    return {
        claim: {role: [Value(*value) for value in values] for role, values in arms.items()}
        for claim, arms in document["claims"].items()
    }
