"""Processes that are asked something: each gets its input, and is waited for until it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile


@dataclass(frozen=True)
class Said:
    """What a process has answered."""

    code: int
    """Its exit status; below 0 the signal that has ended it."""
    out: bytes
    errors: bytes

    @property
    def last_line(self) -> str:
        """The last line of its errors that is not blank; empty: it has none."""
        lines = self.errors.decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


async def said_by(
    *command: str, given: bytes = b"", cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Said:
    """Run a command to its end; where the caller is cancelled, the command is killed and not waited for.

    Args:
        given: its standard input.
        cwd: where it runs; None: where the caller does.
        environment: all of its variables; None: those of the caller.

    Raises:
        OSError: it does not start.
    """
    # Files instead of asyncio's pipes: `wait` would last until all processes that hold the pipes have ended, and so
    # would a start that is cancelled.
    with TemporaryFile() as into, TemporaryFile() as out, TemporaryFile() as errors:
        into.write(given)
        into.seek(0)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=into, stdout=out, stderr=errors, cwd=cwd, env=environment
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        out.seek(0)
        errors.seek(0)
        return Said(code, out.read(), errors.read())
