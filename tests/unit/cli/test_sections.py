"""`sanjaya --help` has every command once, in a section; a command that only asks imports little."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from libs.cli.main import GROUPS, app_for
from libs.cli.sections import SECTIONS, Sections
from libs.testing.processes import ROOT

HEAVY = (
    *("asyncio", "rich", "yaml", "numpy", "scipy", "highspy", "optuna", "sqlalchemy", "fastapi", "aiokafka", "torch"),
    *("libs.bus", "libs.inspect", "libs.policies", "libs.runtime", "libs.sim", "libs.studies", "services"),
)
ASKING = (
    *("jobs", "show j", "why j", "story j", "stacks j", "logs j", "wait j", "cancel j", "pause j", "resume j"),
    *("set j --priority 1", "ls j", "nodes", "gpus", "tenants", "policy", "settings", "events", "sweeps"),
    *("history", "usage", "submit --no-upload -- true"),
)


def test_every_command_is_in_one_section():
    command = get_command(app_for())
    assert isinstance(command, Sections)
    listed = [name for names, _ in SECTIONS.values() for name in names.split()]
    assert sorted(listed) == sorted(name for name, each in command.commands.items() if not each.hidden)


@pytest.mark.parametrize("names", GROUPS.values(), ids=GROUPS)
def test_a_file_registers_the_commands_that_the_table_says(names: str):
    for name in names.split():
        command = get_command(app_for([name, "--help"]))
        assert isinstance(command, Sections)
        assert sorted(command.commands) == sorted(names.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--help", "jobs"]])
def test_help_shows_the_sections_in_order(arguments: list[str]):
    shown = CliRunner().invoke(app_for(arguments), arguments).stdout
    places = [shown.index(f"{title} (") for title in SECTIONS]
    assert places == sorted(places)
    assert "  submit        Submit a job" in shown


def test_a_misspelt_command_is_told_what_was_meant():
    shown = CliRunner().invoke(app_for(["jbos"]), ["jbos"])
    assert shown.exit_code == 2 and "jobs" in shown.output


PROBE = """
import sys
from libs.cli.main import main
try:
    main()
except SystemExit as ended:
    print(ended.code, *(name for name in {heavy} if name in sys.modules))
"""


@pytest.mark.parametrize("arguments", ASKING)
def test_a_command_that_only_asks_imports_nothing_heavy(arguments: str):
    probe = [sys.executable, "-c", PROBE.format(heavy=HEAVY), *arguments.split()]
    environment = {**os.environ, "SANJAYA_GATEWAY": "http://127.0.0.1:1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(probe, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["5"], done.stdout + done.stderr
