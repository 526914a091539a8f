"""What of a running task's GPU memory this node can move to the host: tried, not assumed.

On virtual GPUs that takes the library of harness/memory/allocator.c. It is compiled once per node, kept under the state
folder by what it was made of, and tried in a process of its own before any task gets it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch_agent.flags import Scale
from torch_agent.harness import memory
from torch_agent.options import Options

log = logging.getLogger(__name__)

ALL, ACTIVATIONS, NONE = "all", "activations", ""
"""Values of `NodeJoined.scales_memory`."""
SOURCE = Path(str(memory.__file__)).with_name("allocator.c")
TRIAL = Path(__file__).with_name("allocator_trial.py")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-shared", "-fPIC")
LIBRARIES = ("-ldl", "-lpthread")
PATIENCE_S = 60.0
"""With a compiler, and with the trial."""


class CannotScale(Exception):
    """The memory of virtual GPUs cannot be limited here; the message says what is missing."""


@dataclass(frozen=True)
class Scaling:
    """What a node does about the memory of its tasks."""

    memory: str = NONE
    """As `NodeJoined.scales_memory`."""
    preload: Path | None = None
    """The library that processes of tasks are started with; None: none."""
    spill_bytes: int = 0
    """As `NodeJoined.spill_bytes`."""


def found(options: Options, gpu_bytes: int, *, virtual: bool) -> Scaling:
    """What this node can do.

    Args:
        options: of the agent.
        gpu_bytes: memory of all of its GPUs.
        virtual: they are.
    """
    if options.scale_memory is Scale.NO or (options.scale_memory is Scale.AUTO and not virtual):
        return Scaling()
    if not virtual:
        # How much each torch can do is known in its process alone. Tensors beyond a limit make real GPUs very slow.
        return Scaling(ACTIVATIONS, None, options.memory_bytes // 2)
    try:
        library = compiled(SOURCE, options.state_dir / "lib", os.environ.get("PATH", os.defpath))
        tried(library)
    except (CannotScale, OSError) as error:
        log.warning("the memory of tasks is not limited on this node: %s", error)
        return Scaling()
    # A virtual GPU's memory is the host's: what is left of it beside them.
    return Scaling(ALL, library, max(0, options.memory_bytes - gpu_bytes))


def compiled(source: Path, folder: Path, path: str) -> Path:
    """The library of this source: one that was made before, or a new one.

    Args:
        source: a C file.
        folder: where libraries are kept; agents that make the same one at once do not disturb each other.
        path: where compilers are looked for. Without one a library that another compiler has made of the same source
            does.

    Raises:
        CannotScale: there is neither, or the compiler fails.
    """
    name = f"{source.stem}-{_digest(source.read_bytes(), platform.machine().encode())}"
    compiler = next((program for each in COMPILERS if (program := shutil.which(each, path=path))), None)
    if compiler is None:
        made = sorted(folder.glob(f"{name}-*.so"))
        if made:
            return made[-1]
        raise CannotScale(f"there is no C compiler on PATH (expected one of {', '.join(COMPILERS)})")
    flags = " ".join((*FLAGS, *LIBRARIES))
    library = folder / f"{name}-{_digest(_said([compiler, '--version']).encode(), flags.encode())}.so"
    if not library.exists():
        _compile(compiler, source, library)
    return library


def tried(library: Path) -> None:
    """Have a process that is started with it move memory out and back.

    Raises:
        CannotScale: that does not work here, e.g. because nothing may be executed that lies in the state folder.
    """
    _said([sys.executable, "-I", "-S", str(TRIAL)], {"LD_PRELOAD": str(library)})


def _compile(compiler: str, source: Path, library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, part = tempfile.mkstemp(prefix=f"{library.stem}.", suffix=".part", dir=library.parent)
    os.close(descriptor)
    try:
        _said([compiler, *FLAGS, "-o", part, str(source), *LIBRARIES])
        Path(part).chmod(0o755)
        Path(part).rename(library)
    finally:
        with suppress(FileNotFoundError):
            Path(part).unlink()


def _said(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What a command writes.

    Raises:
        CannotScale: it fails.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotScale(f"{command[0]}: {error}") from error
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip())[-500:]
        raise CannotScale(f"{' '.join(command)} ended with status {done.returncode}: {why}")
    return done.stdout


def _digest(*parts: bytes) -> str:
    h = hashlib.blake2b(digest_size=8)
    for part in parts:
        h.update(len(part).to_bytes(8, "big") + part)
    return h.hexdigest()
