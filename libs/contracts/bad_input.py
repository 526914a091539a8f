"""The error of everything that reads files across the border of the product."""

from __future__ import annotations


class BadInput(Exception):
    """The input breaks its format: where (file and line or JSON path), what was seen, and what was expected."""

    def __init__(self, where: str, what: str, expected: str) -> None:
        super().__init__(f"{where}: {what}; expected {expected}")
        self.where, self.what, self.expected = where, what, expected
