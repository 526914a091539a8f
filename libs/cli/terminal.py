"""The user's own terminal, while it shows another one."""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SAVE_TITLE, RESTORE_TITLE = b"\x1b[22;2t", b"\x1b[23;2t"


@contextmanager
def raw(keyboard: int, screen: int, title: str) -> Iterator[None]:
    """Every key goes through as it is, Ctrl-C too; title and settings are as before when the block ends, however.

    Args:
        keyboard: descriptor of the terminal that is read.
        screen: descriptor that is written.
        title: of the window.
    """
    before = termios.tcgetattr(keyboard)
    shown = "".join(character for character in title if character.isprintable())
    try:
        tty.setraw(keyboard, termios.TCSADRAIN)  # what has been typed meanwhile is for the other side, too
        os.write(screen, SAVE_TITLE + f"\x1b]2;{shown}\x07".encode())
        yield
    finally:
        with suppress(termios.error, OSError):  # the window may be gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
            os.write(screen, RESTORE_TITLE)


def size(screen: int) -> tuple[int, int]:
    """Rows and columns."""
    try:
        columns, rows = os.get_terminal_size(screen)
    except OSError:
        columns, rows = 0, 0
    return rows or 24, columns or 80
