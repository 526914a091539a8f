"""Results that go to a file or to standard output."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from libs.cli.context import USAGE, fail
from libs.contracts.bad_input import BadInput

if TYPE_CHECKING:
    from libs.studies.report.drawing import Drawing

EXPECTED = "a file that can be written"


def write_text(text: str, out: str) -> None:
    """Write to a file, or to standard output for `-`.

    Raises:
        BadInput: the file cannot be written.
    """
    if out == "-":
        sys.stdout.write(text)
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(out, error.strerror or str(error), EXPECTED) from None


def check_writable(out: str | Path) -> None:
    """Before hours of work: raises BadInput when `write_text` will not be able to write the file."""
    path = Path(out)
    if str(out) == "-":
        return
    if path.is_dir():
        raise BadInput(str(out), "a directory", EXPECTED)
    if not path.parent.is_dir():
        raise BadInput(str(out), f"there is no directory {path.parent}", EXPECTED)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(str(out), "writing is not permitted", EXPECTED)


def check_picture(out: Path) -> None:
    """Before anything is asked: ends the process with 2 for another form than SVG and PNG.

    Raises:
        BadInput: `write_picture` will not be able to write the file.
    """
    if out.suffix not in (".svg", ".png"):
        fail(f"--out {out}: expected a name that ends in .svg or .png", USAGE)
    check_writable(out)


def write_picture(picture: Drawing, out: Path) -> None:
    """Write to a file, in the form that its name asks for, with title and caption."""
    picture = picture.alone()
    out.write_bytes(picture.svg() if out.suffix == ".svg" else picture.png())
