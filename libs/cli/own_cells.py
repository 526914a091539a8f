"""The cells that `sanjaya up` keeps for this user on this machine: where the token of each is, by its gateway's port.

The state directory of a cell can be anywhere; so each cell that takes tokens leaves a file, named by its port, that
names the file of its token.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from libs.cli.private import write_private
from libs.contracts.bad_input import BadInput

PORTS = Path("~/.sanjaya/.ports")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LISTENS = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The kernel's sockets, with the user of each (proc(5))."""


def remember(port: int, token_file: Path) -> None:
    """Have commands of this user find the token of the cell at a port.

    Raises:
        OSError: the home directory cannot be written to.
    """
    folder = PORTS.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / str(port), f"{token_file}\n")


def forget(port: int, token_file: Path) -> None:
    """The cell has ended; another one that has the port by now stays known."""
    path = PORTS.expanduser() / str(port)
    try:
        if path.read_text().strip() == str(token_file):
            path.unlink()
    except OSError:
        return


def token_of(gateway: str) -> tuple[str, Path] | None:
    """The token of this user's own cell at a gateway's URL, and its file; None: there is no such cell.

    A token is given to nothing that another user listens with: the cell may have ended, and its port be taken.

    Raises:
        BadInput: the file of the token can be read by other users.
    """
    parts = urlsplit(gateway)
    if parts.hostname not in LOOPBACK or parts.port is None:
        return None
    try:
        path = Path((PORTS.expanduser() / str(parts.port)).read_text().strip())
        found, token = path.stat(), path.read_text().strip()
    except OSError:
        return None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise BadInput(str(path), f"mode {found.st_mode & 0o777:o} of user {found.st_uid}", "600, of your own")
    return (token, path) if listeners(parts.port) <= {os.getuid()} else None


def listeners(port: int) -> set[int]:
    """The user ids of the processes that listen at a port of this machine."""
    found: set[int] = set()
    for table in _TABLES:
        try:
            rows = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == _LISTENS and int(columns[1].rpartition(":")[2], 16) == port:
                found.add(int(columns[7]))
    return found
