"""Which tests of a run with `-n` share a process, and which come first."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from zlib import crc32

from xdist.scheduler import LoadScopeScheduling

SHARED = ("libs.testing.kafka",)
"""Plugins with a dear fixture that lasts for a whole session: it is made once if one process runs all of its tests."""
LONG = ("e2e", "chaos", "integration")
"""Folders of tests that start processes; those of the others take milliseconds each, or a few seconds."""
LONGEST = tuple(f"integration/test_{subject}.py" for subject in ("launchers", "job_api", "moving_between_agents"))
"""Files with minutes of tests that a process goes through one after the other."""


class FilesSideBySide(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """A process takes file after file, and the files that share a plugin as if they were one.

    Fixtures of a module, cells of real processes above all, are made in each process that runs one of its tests. The
    mark `xdist_group` would do, but it renames tests, which pytest 9 does not allow. `_split_scope` is a private part
    of pytest-xdist 3.8.
    """

    def schedule(self) -> None:
        """Hand out tests in the order in which they were collected, see `rank`."""
        self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return group_of(self.config.rootpath / nodeid.partition("::")[0])


@cache
def group_of(file: Path) -> str:
    """The tests that those of a file share their process with: a plugin of `SHARED`, or the file."""
    named = [line for line in file.read_text().splitlines() if line.startswith("pytest_plugins")]
    return next((plugin for plugin in SHARED for line in named if f'"{plugin}"' in line), str(file))


def rank(file: Path) -> tuple[int, int]:
    """When a file's turn comes: what begins last ends last, and a test of a minute would be waited for alone.

    The longest files begin; other files with long tests come in an order by chance, the same in every run: cells of a
    dozen processes, which would keep each other waiting side by side, and tests that wait alternate.
    """
    name = "/".join(file.parts[-2:])
    by_chance = crc32(name.encode())
    if group_of(file) in SHARED:
        return 0, by_chance
    if name in LONGEST:
        return 1, 0
    return (1 if file.parent.name in LONG else 2), by_chance
