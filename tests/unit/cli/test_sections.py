"""`sanjaya --help` has every command once, in a section."""

from __future__ import annotations

from typer.main import get_command
from typer.testing import CliRunner

from libs.cli.main import app
from libs.cli.sections import SECTIONS, Sections


def test_every_command_is_in_one_section():
    command = get_command(app)
    assert isinstance(command, Sections)
    listed = [name for names, _ in SECTIONS.values() for name in names.split()]
    assert sorted(listed) == sorted(name for name, each in command.commands.items() if not each.hidden)


def test_help_shows_the_sections_in_order():
    shown = CliRunner().invoke(app, ["--help"]).stdout
    places = [shown.index(f"{title} (") for title in SECTIONS]
    assert places == sorted(places)
    assert "  submit      Submit a job" in shown
