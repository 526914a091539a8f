"""A results file that says on what machine, when and by which command its figures were measured."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

MOST_COLUMNS = 40
RESULTS = Path(__file__).with_name("results")


class Report:
    """Rows of named figures, printed as they come, written as JSON and as a table."""

    def __init__(self, name: str, title: str, *, module: str = "") -> None:
        """An empty one.

        Args:
            name: of its files.
            title: of its table.
            module: that measures, of this folder or with its whole name; empty: the one of this name.
        """
        self._name, self._title = name, title
        self._module = module if "." in module else f"tests.bench.{module or name}"
        self._rows: list[dict[str, Any]] = []

    def row(self, what: str, **figures: Any) -> None:
        """Add one measurement."""
        self._rows.append({"what": what, **figures})
        print(f"{what}: " + ", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)

    def all_within_limits(self) -> bool:
        """Whether no row says that it missed its limit."""
        return all(row.get("within_limit", True) for row in self._rows)

    def write(self) -> None:
        """Write `results/<name>.json` and `.md`."""
        RESULTS.mkdir(exist_ok=True)
        about = {
            "title": self._title,
            "command": f"python -m {self._module} {' '.join(sys.argv[1:])}".strip(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine(),
        }
        document = {**about, "rows": self._rows}
        (RESULTS / f"{self._name}.json").write_text(json.dumps(document, indent=1) + "\n")
        (RESULTS / f"{self._name}.md").write_text(self._table(about))

    def _table(self, about: dict[str, str]) -> str:
        """One table, or one for each group of rows with the same columns where a single one would be too wide."""
        lines = [f"# {about['title']}", "", f"`{about['command']}` · {about['date']} · {about['machine']}"]
        groups = [self._rows]
        if len(_heads(self._rows)) > MOST_COLUMNS:
            groups = [list(group) for _, group in groupby(self._rows, key=lambda row: tuple(row))]
        for group in groups:
            heads = _heads(group)
            lines += ["", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
            lines += ["| " + " | ".join(str(row.get(head, "")) for head in heads) + " |" for row in group]
        return "\n".join(lines) + "\n"


def _heads(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def machine() -> str:
    """Processor, cores and versions."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"
