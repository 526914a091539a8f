"""A user's terminal window with a program in it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Any

WITHIN_S = 120.0


class Window:
    """Use as a context manager; the program is ended with it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, rows: int, columns: int) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(rows, columns)
        self.settings_before = self.settings()
        self.shown = b""

        def in_the_child() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=in_the_child,
        )

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._slave)
        os.close(self._master)

    def settings(self) -> list[Any]:
        """Echo, line mode and the rest, as the program has left them."""
        return termios.tcgetattr(self._slave)

    def resize(self, rows: int, columns: int) -> None:
        """As a user does with the mouse."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """On the keyboard."""
        os.write(self._master, text.encode())

    def shows(self, pattern: str) -> re.Match[str]:
        """Wait until the window shows it behind what was waited for before."""
        deadline = time.monotonic() + WITHIN_S
        while (found := re.search(pattern, self.shown.decode(errors="replace"))) is None:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} is not in {self.shown!r}"
            self.shown += os.read(self._master, 65536)
        self.shown = self.shown.decode(errors="replace")[found.end() :].encode()
        return found

    def ends(self) -> int:
        """Wait for the program's end; returns its exit code."""
        while self.process.poll() is None:
            ready, _, _ = select.select([self._master], [], [], 0.1)
            if ready:
                self.shown += os.read(self._master, 65536)
        return self.process.returncode
