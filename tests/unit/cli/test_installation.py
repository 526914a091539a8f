"""How programs of this installation are started, and the command that adds a package to it."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from libs.cli.cell import CellPlan
from libs.cli.installation import DEMONSTRATION, TORCH, command_to_add, program
from libs.testing.processes import ROOT


def test_a_package_of_the_users_directory_is_not_taken_for_a_service(tmp_path: Path):
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "__init__.py").write_text("raise SystemExit('a package of the user')\n")
    said = subprocess.run(program("libs.runtime"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "usage: python -m libs.runtime SERVICE" in said.stderr


def test_every_process_of_a_cell_is_started_so(tmp_path: Path):
    plan = CellPlan(state_dir=tmp_path, broker_port=9092)
    for command in (plan.broker(), *plan.services(), *plan.agent_commands()):
        assert command.argv[:3] == program("")[:3], command.name


def test_the_command_that_adds_torch_can_be_typed_as_it_is():
    words = shlex.split(command_to_add(TORCH))
    assert words[-1] == TORCH
    assert sys.executable in words
    assert "install" in words


def test_the_extra_has_what_the_demonstration_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]["agent"]) == set(DEMONSTRATION.values())
