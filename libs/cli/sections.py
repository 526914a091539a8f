"""The commands of `sanjaya --help`, by what they are for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SECTIONS = {
    "Jobs": (
        "submit run jobs show why story stacks logs wait cancel pause resume set",
        "in the order of a job's life",
    ),
    "Inside a job": ("ls cp exec shell forward notebook", "files, commands, a terminal, ports"),
    "Sweeps": ("sweep sweeps", "search for hyper-parameters"),
    "Cluster": (
        "nodes gpus drain undrain tenants tenant policy settings repair-clock",
        "what there is, and for which jobs",
    ),
    "Log and audit": (
        "history usage failures events deadletter profile replay coordination interference rehearse what-if diff state "
        "export archive classify rules analyze",
        "what has happened, and whether it had to",
    ),
    "Before anything runs": ("data solve simulate generate experiment reproduce", "data, policies and traces, tried"),
    "This machine": ("up down page agent demo doctor config context version", "cells, and how this command finds them"),
}
"""{title: (names of commands, what they have in common)}."""


class Sections(TyperGroup):
    """The list of commands in sections. Uses `format_commands` of typer 0.29."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each part of the list."""
        longest = max(len(name) for names, _ in SECTIONS.values() for name in names.split())
        for title, (names, common) in SECTIONS.items():
            limit = formatter.width - 6 - longest
            rows = [(name.ljust(longest), self.commands[name].get_short_help_str(limit)) for name in names.split()]
            with formatter.section(f"{title} ({common})"):
                formatter.write_dl(rows)
