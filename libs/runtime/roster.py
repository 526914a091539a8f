"""The services of this installation.

Libraries import no service. The package says where they are listed: an entry point in `pyproject.toml`,
`[project.entry-points.sanjaya]`, with a module such as `services.roster` as its `roster`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution
from typing import Any, Protocol, cast

from libs.kernel.service import Service

DISTRIBUTION, GROUP, NAME = "sanjaya-scheduler", "sanjaya", "roster"


class Roster(Protocol):
    """A module that lists services."""

    NAMES: tuple[str, ...]
    """Of all, in the order in which a new job meets them; to read them imports no service."""

    @property
    def SERVICES(self) -> tuple[Service[Any], ...]:  # noqa: N802 - a constant of the module
        """All, in the order of their names; they are imported when they are first asked for."""

    def service(self, name: str) -> Service[Any]:
        """The service of this name; no other is imported.

        Raises:
            KeyError: there is none; the message lists those that exist.
        """


class RosterMissing(Exception):
    """The installed package names no roster."""


@cache
def roster() -> Roster:
    """The roster that the installed package names.

    Raises:
        RosterMissing: it names none: it was installed before it had this entry point.
    """
    found = distribution(DISTRIBUTION).entry_points.select(group=GROUP, name=NAME)
    if not found:
        raise RosterMissing(
            f"the installed {DISTRIBUTION} has no entry point {NAME!r} in the group {GROUP!r}: a module that lists the "
            "services was expected; install it again (make setup)"
        )
    return cast(Roster, found[NAME].load())
