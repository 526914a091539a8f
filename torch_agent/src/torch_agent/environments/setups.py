"""Environments that jobs set up (`--setup COMMAND`): a virtual environment per content, made once and kept.

`<state dir>/setups/<key>/` is a virtual environment above the interpreter that the job names: it sees what is installed
there, such as torch. The command runs in the job's working directory while it is active. What is in it counts only with
the mark that is written last: one without it was broken off while it was made, and is made anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch_agent.asking import said_by
from torch_agent.environments.activation import Activation, of_venv
from torch_agent.environments.commands import Commands, SetupFailed, say
from torch_agent.kept import KeptFolders
from torch_agent.membership import kill_marked

MARK = "sanjaya-setup.json"
_ASKS = "import json, site, sys; print(json.dumps([sys.executable, sys.version, site.getsitepackages()]))"


@dataclass(frozen=True)
class Wanted:
    """An environment that a job is to have."""

    command: str
    content: str
    """Names the files that the command may read: the id of the uploaded code, or the directory on the node."""
    base: Activation
    """The environment that it is made above."""
    cwd: Path
    environment: Mapping[str, str]
    """Of the job's tasks, without a place in a gang."""
    limit_s: float


@dataclass(frozen=True)
class _Interpreter:
    executable: str
    version: str
    packages: tuple[str, ...]

    def key(self, wanted: Wanted) -> str:
        """The same for the same command, content and interpreter."""
        parts = (wanted.command, wanted.content, self.executable, self.version)
        return "s-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class Setups(KeptFolders):
    """The environments that setups have made on the node."""

    def __init__(self, folder: Path, most_bytes: int, longest_s: float) -> None:
        super().__init__(folder, most_bytes, longest_s)
        self._locks: dict[str, asyncio.Lock] = {}

    async def key_of(self, wanted: Wanted) -> tuple[str, _Interpreter]:
        """Names the environment, and what it is made above.

        Raises:
            SetupFailed: the interpreter does not run.
        """
        interpreter = await _asked(wanted.base.python)
        return interpreter.key(wanted), interpreter

    def is_ready(self, key: str) -> bool:
        """Whether it has been made."""
        return (self.folder / key / MARK).exists()

    async def prepared(self, key: str, interpreter: _Interpreter, wanted: Wanted, output: Path) -> Activation:
        """The environment, made now or before. Tasks that need the same wait for one.

        Args:
            output: the file that gets what the command writes.

        Raises:
            SetupFailed: the command ended badly, or took too long.
            OSError: the node cannot store it.
        """
        folder = self.folder / key
        async with self._locks.setdefault(key, asyncio.Lock()):
            if self.is_ready(key):
                os.utime(folder / MARK)  # its age counts from its last use
                say(output, f"prepared before on this node: {wanted.command}")
            else:
                await self._make(folder, interpreter, wanted, output)
        return of_venv(folder).over(wanted.base)

    async def _make(self, folder: Path, interpreter: _Interpreter, wanted: Wanted, output: Path) -> None:
        mark = str(folder)
        try:
            # What an agent that was killed has left of it may still be at work.
            await asyncio.to_thread(kill_marked, mark)
            await asyncio.to_thread(self.remove, folder.name)
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            async with asyncio.timeout(wanted.limit_s):
                outside = {k: v for k, v in wanted.environment.items() if k not in wanted.base.drops}
                commands = Commands(wanted.cwd, mark, output)
                venv = [interpreter.executable, "-m", "venv", "--without-pip", "--system-site-packages", mark]
                await commands.run(venv, outside)
                _open_up(folder, interpreter)
                active = of_venv(folder).over(wanted.base)
                path = ":".join((*active.path, wanted.environment.get("PATH", os.defpath)))
                say(output, wanted.command)
                await commands.run(["/bin/sh", "-c", wanted.command], {**outside, **active.variables, "PATH": path})
            (folder / MARK).write_text(json.dumps({"command": wanted.command, "content": wanted.content}))
        except TimeoutError:
            raise SetupFailed(f"{wanted.command}: not done within {wanted.limit_s:g} s") from None
        finally:
            if not (folder / MARK).exists():
                kill_marked(mark)  # at once, also where the agent is leaving


def _open_up(folder: Path, interpreter: _Interpreter) -> None:
    """Have the environment see the packages of the interpreter, also where that is of a virtual environment itself.

    The interpreter's pip is its pip, too: to install another one takes seconds.
    """
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "sanjaya.pth").write_text("".join(f"{each}\n" for each in interpreter.packages))
    if any((Path(each) / "pip").is_dir() for each in interpreter.packages):
        for name in ("pip", "pip3"):
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m pip "$@"\n')
            (folder / "bin" / name).chmod(0o755)


async def _asked(python: str) -> _Interpreter:
    try:
        said = await said_by(python, "-I", "-c", _ASKS)
    except OSError as error:
        raise SetupFailed(f"{python} does not run: {error}") from None
    if said.code != 0:
        raise SetupFailed(f"{python} does not run: {said.last_line or f'status {said.code}'}")
    try:
        executable, version, packages = json.loads(said.out)
    except ValueError as error:
        raise SetupFailed(f"{python} is no Python: {error}") from None
    return _Interpreter(executable, version, tuple(packages))
