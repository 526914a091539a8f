"""The installed package names the services; libraries import none."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.runtime import roster as rosters
from libs.runtime.roster import DISTRIBUTION, RosterMissing

installed = rosters.roster.__wrapped__
"""What is installed now, whatever has been found before."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the same name, installed before all others: its entry points are to be written."""
    folder = tmp_path / f"{DISTRIBUTION.replace('-', '_')}-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 9\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_the_roster_is_the_module_that_the_package_names(package: Path):
    (package / "entry_points.txt").write_text("[sanjaya]\nroster = another_cells_services\n")
    (package.parent / "another_cells_services.py").write_text("NAMES = ('quota',)\n")
    assert installed().NAMES == ("quota",)


@pytest.mark.parametrize("entry_points", ["", "[console_scripts]\nsanjaya = libs.cli.main:main\n"])
def test_a_package_of_before_says_that_it_is_to_be_installed_again(package: Path, entry_points: str):
    (package / "entry_points.txt").write_text(entry_points)
    with pytest.raises(RosterMissing, match=r"entry point 'roster' in the group 'sanjaya'.*make setup"):
        installed()
