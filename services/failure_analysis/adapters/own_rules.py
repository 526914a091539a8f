"""The rules in force: the package's, and what operators have beside them in a folder, looked at while the cell runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from libs.contracts.bad_input import BadInput
from libs.failures.checking import problems
from libs.failures.consequences import FILE, OUTCOMES, read_table
from libs.failures.package import package_files, package_rules
from libs.failures.reading import read
from libs.failures.ruleset import RuleSet

PATTERN = "*.yaml"


@dataclass(frozen=True)
class Loaded:
    """Rules that may be used."""

    rules: RuleSet
    consequences: Mapping[str, str] = field(default_factory=dict)
    """The operators' own table."""
    refused: str = ""
    """What is wrong with the files as they are now; the rules are those from before."""


class OwnRules:
    """A folder of operators' rules."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: None where there is none."""
        self._folder = folder
        self._seen: list[tuple[str, int, int]] | None = None
        self._loaded: Loaded | None = None

    def load(self) -> Loaded | None:
        """The rules, where they are others than at the last call; reads files and compiles rules, which takes time.

        Bad rules change nothing but what is said of them.
        """
        seen = self._look()
        if self._loaded is not None and seen == self._seen:
            return None
        self._seen = seen
        before = self._loaded or Loaded(package_rules())
        try:
            self._loaded = self._read()
        except BadInput as error:
            self._loaded = Loaded(before.rules, before.consequences, str(error))
        except OSError as error:
            self._loaded = Loaded(before.rules, before.consequences, f"{error}; expected files that can be read")
        return self._loaded

    def _look(self) -> list[tuple[str, int, int]]:
        """Names, times and sizes of the files."""
        found = []
        for path in self._files():
            try:
                stat = path.stat()
            except OSError:  # it is gone again
                continue
            found.append((path.name, stat.st_mtime_ns, stat.st_size))
        return found

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(PATTERN)) if self._folder is not None else []

    def _read(self) -> Loaded:
        if self._folder is not None and not self._folder.is_dir():
            raise BadInput(str(self._folder), "no such folder", "a folder with files of rules")
        texts = [(str(path), path.read_bytes().decode("utf-8", "replace")) for path in self._files()]
        own = [(name, text) for name, text in texts if Path(name).name != FILE]
        rules, causes = package_rules(), package_files().causes
        if own:
            together = read(own, package_files())
            rules, causes = RuleSet(together), together.causes
            if (problem := next(problems(together, rules), None)) is not None:
                raise problem
        table: dict[str, str] = {}
        for name, text in texts:
            if Path(name).name == FILE:
                table = read_table(name, text, (*causes, *OUTCOMES))
        return Loaded(rules, table)
