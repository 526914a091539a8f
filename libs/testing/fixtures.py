"""How the suite runs; loaded as a pytest plugin before any test is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.testing.disks import disk
from libs.testing.effort import load_profile

WORKERS_PER_CORE, MOST_WORKERS = 2, 16
"""Tests of whole cells wait for processes about as long as they compute; each worker imports and collects all tests."""


def pytest_configure() -> None:
    """Tests read the settings of their searches when they are imported."""
    load_profile()


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `-n auto` is."""
    return min(WORKERS_PER_CORE * (os.cpu_count() or 1), MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What `-n` distributes by."""
    from libs.testing.scheduling import FilesSideBySide  # pytest-xdist is there if it calls this

    return FilesSideBySide(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what tries more examples when it is thorough; in a process of a run with `-n`, begin with the longest."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.thorough)
    if hasattr(config, "workerinput"):
        from libs.testing.scheduling import rank

        items.sort(key=lambda item: rank(item.path))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 16 MiB, in memory."""
    with disk(tmp_path / "small", 16 << 20) as folder:
        yield folder


@pytest.fixture
def dated_by_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log has taken each record when its source made it: for what a test has put on it in a moment."""
    from libs.bus import codec
    from libs.testing.forgetful import dated

    read = codec.envelope
    monkeypatch.setattr(codec, "envelope", lambda message: read(dated(message)))
