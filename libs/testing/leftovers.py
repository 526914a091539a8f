"""What a cell has left behind on this machine."""

from __future__ import annotations

from pathlib import Path

import psutil


def nothing_left_of(folder: Path) -> list[str]:
    """Processes that still have to do with a folder, by their arguments or their working directory."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
        about = " ".join([*(process.info["cmdline"] or []), process.info["cwd"] or ""])
        if str(folder) in about and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{process.info['pid']}: {about[:200]}")
    return found
