"""No thread meets a Struct that msgspec does not know yet: two that do so together end the process."""

from __future__ import annotations

import asyncio
import sys


async def test_all_events_and_rows_are_known_once_their_modules_are_imported() -> None:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "tests.integration.meeting_types"]
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe)
    printed, _ = await asyncio.wait_for(process.communicate(), 300)
    assert (process.returncode, printed.decode()) == (0, "")
