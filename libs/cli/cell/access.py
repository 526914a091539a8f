"""What keeps a cell to its user: a state directory of its own, and tokens for the user and the cell's agents."""

from __future__ import annotations

import getpass
import os
import pwd
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from libs.cli.cell.errors import CellError
from libs.cli.cell.tokens import entry, write_tokens
from libs.cli.private import write_private

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
"""What the gateway takes for the name of a token's owner."""


@dataclass(frozen=True)
class Access:
    """The files of a state directory that say which requests the gateway takes."""

    state_dir: Path

    @property
    def token_file(self) -> Path:
        """Of the cell's user, with every right; the command line finds it."""
        return self.state_dir / "token"

    @property
    def agents_token_file(self) -> Path:
        """Of the cell's own agents, which fetch uploads with it."""
        return self.state_dir / "own_agents.token"

    @property
    def tokens_file(self) -> Path:
        """What the gateway knows of both: their hashes."""
        return self.state_dir / "tokens.yaml"

    def prepare(self) -> None:
        """Make what is not there yet: tokens stay the same over restarts, until their file is removed."""
        write_tokens(
            self.tokens_file,
            entry(user_name(), _ensured(self.token_file), "admin"),
            entry("own-agents", _ensured(self.agents_token_file), "read"),
        )

    def token(self) -> str:
        """The user's, once `prepare` was called."""
        return self.token_file.read_text().strip()


def own_folder(path: Path) -> bool:
    """Make a directory that is open to its user alone, or close one that is there to others.

    Returns:
        Whether it was open to others.

    Raises:
        CellError: it belongs to another user, or cannot be made.
    """
    try:
        if not path.exists():
            path.mkdir(mode=0o700, parents=True)
            # A working directory around it is uploaded, or is a repository: tokens and the log are left out of both.
            (path / ".gitignore").write_text("*\n")
        found = path.stat()
        if found.st_uid != os.getuid():
            raise CellError(
                f"the state directory {path} belongs to {_name_of(found.st_uid)}, and with it all of the cell would; "
                f"expected one of {user_name()}'s own  try: --state-dir DIR"
            )
        if not found.st_mode & 0o077:
            return False
        path.chmod(0o700)
    except OSError as error:
        raise CellError(f"the state directory {path} cannot be used: {error.strerror}") from None
    return True


def user_name() -> str:
    """By which jobs of the cell's user go; `owner` where the system has no name that the gateway takes."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return "owner"
    return name if _NAME.fullmatch(name) else "owner"


def _name_of(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _ensured(path: Path) -> str:
    """The token in a file that its user alone can read; made when it is not there, or could have been read."""
    try:
        found = path.stat()
        if found.st_uid == os.getuid() and not found.st_mode & 0o077 and (token := path.read_text().strip()):
            return token
    except FileNotFoundError:
        pass
    token = secrets.token_urlsafe(32)
    write_private(path, f"{token}\n")
    return token
