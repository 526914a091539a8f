"""The corpus as data: `programs/*.yaml`, a group of programs each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from libs.contracts.bad_input import BadInput
from libs.failures.package import package_files
from libs.failures.rule import REASONS
from libs.failures.verdict import NO_SIGNATURE
from tests.corpus.needs import NEEDS

PROGRAMS = Path(__file__).parent / "programs"
NO_STATUS_CAUSES = frozenset((NO_SIGNATURE, "killed", "unknown_exception"))
"""Causes that no rule of the package gives: an exit status does, or nothing."""


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program, how it is run, and why it fails."""

    id: str
    reason: str | tuple[str, ...]
    """Of the study's Table 6, by what the program does; several where its definitions leave it open."""
    cause: str | tuple[str, ...] = ()
    """Finer: a name of the causes' table; several where they overlap; none = not judged."""
    line: str | None = None
    """The line that shows the root cause, or a part by which it is known; None where no line does."""
    run: str
    """A command for bash, in a folder of its own that has `files`."""
    files: dict[str, str] = {}
    """{path: text}."""
    env: dict[str, str] = {}
    needs: tuple[str, ...] = ()
    """What the machine must have; names of `needs.NEEDS`."""
    ranks: int = 1
    """So many processes of `run`, as a launcher of torch.distributed starts them."""
    limit_mb: int = 0
    """Memory of the cgroup that it runs in; 0 = unlimited."""
    limit_s: float = 120.0
    """A program that takes longer has not failed in the way that it was written for."""
    held_out: bool = False
    """Rules are not mended by it: it stands for unseen logs."""
    note: str = ""
    group: str = ""
    """The name of its file."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons that are right."""
        return (self.reason,) if isinstance(self.reason, str) else self.reason

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes that are right; empty = not judged."""
        return (self.cause,) if isinstance(self.cause, str) else self.cause


def programs(folder: Path = PROGRAMS) -> list[Program]:
    """All programs, in the order of their files.

    Raises:
        BadInput: a file is no group of programs; a name is unknown or there twice.
    """
    found = [program for path in sorted(folder.glob("*.yaml")) for program in _group(path)]
    seen: set[str] = set()
    for program in found:
        where = f"{program.group}.yaml: program {program.id}"
        if program.id in seen:
            raise BadInput(where, "the id is there twice", "an id of its own")
        seen.add(program.id)
        _check(program, where)
    return found


def _group(path: Path) -> list[Program]:
    try:
        read = msgspec.convert(yaml.safe_load(path.read_text()), dict[str, list[dict[str, object]]])
        return [msgspec.convert({**item, "group": path.stem}, Program) for item in read["programs"]]
    except (yaml.YAMLError, msgspec.ValidationError, KeyError) as error:
        raise BadInput(path.name, str(error), "`programs:`, a list as in tests/corpus/README.md") from None


def _check(program: Program, where: str) -> None:
    known: dict[str, tuple[Sequence[str], object]] = {
        "reason": (program.reasons, REASONS),
        "cause": (program.causes, {*package_files().causes, *NO_STATUS_CAUSES}),
        "need": (program.needs, NEEDS),
    }
    for kind, (names, those) in known.items():
        if unknown := [name for name in names if name not in those]:  # type: ignore[operator]
            raise BadInput(where, f"unknown {kind} {', '.join(unknown)}", f"a known {kind}")
    if not program.reasons or program.ranks < 1 or not program.run.strip():
        raise BadInput(where, "no reason, no command or no rank", "at least one of each")
