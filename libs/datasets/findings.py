"""What a check has found so far."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from libs.contracts.agent import DataViolation
from libs.datasets.schema import DataSchema
from libs.kernel.words import counted

MOST_VIOLATIONS = 20
LONGEST_VALUE = 100


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check."""

    files: int
    rows: int
    complete: bool
    """Everything was looked at; else the check ended with the last violation that is named, or before values were read.
    """
    violations: list[DataViolation]


class Findings:
    """Collects violations until there are enough."""

    def __init__(self) -> None:
        self.files = self.rows = 0
        self.violations: list[DataViolation] = []

    @property
    def is_full(self) -> bool:
        """Whether no further one is named."""
        return len(self.violations) >= MOST_VIOLATIONS

    @property
    def room(self) -> int:
        """How many more are named."""
        return MOST_VIOLATIONS - len(self.violations)

    def add(self, file: str, row: int | None, column: str, value: object, expected: str) -> None:
        """One more; dropped when there are enough."""
        if not self.is_full:
            text = value if isinstance(value, str) else repr(value)
            cut = text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
            self.violations.append(DataViolation(file=file, row=row, column=column, value=cut, expected=expected))

    def check_names(self, schema: DataSchema, file: str, names: Iterable[str]) -> list[str]:
        """Compare the columns of a file with those of the schema; returns the schema's that are there."""
        there = list(names)
        for column in schema.columns:
            if column.required and column.name not in there:
                self.add(file, None, column.name, f"no such column among {', '.join(there)}", column.expected)
        for name in there if schema.closed else ():
            if name not in schema.names:
                self.add(file, None, name, "a column of this name", f"no columns but {', '.join(schema.names)}")
        return [name for name in schema.names if name in there]

    def check_rows(self, schema: DataSchema, data: str) -> None:
        """Compare how many rows there are together."""
        least, most = schema.min_rows, schema.max_rows
        if (least is not None and self.rows < least) or (most is not None and self.rows > most):
            expected = (
                f"{least or 0} or more" if most is None else f"{most}" if most == least else f"{least or 0} to {most}"
            )
            self.add(data, None, "", counted(self.rows, "row"), f"{expected} rows")

    def report(self, *, complete: bool = True) -> Report:
        """What was found; `complete`: whether all was looked at, but for what comes after the last violation."""
        whole = complete and not self.is_full
        return Report(files=self.files, rows=self.rows, complete=whole, violations=list(self.violations))
