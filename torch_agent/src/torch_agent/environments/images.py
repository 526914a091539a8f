"""Container images: which program runs them on this node, and by which command line.

What a task needs from the node is mounted at the same path as outside, so that every path it is told holds inside, too.
Values of variables stand in the runner's environment and not on its command line, which everyone on the node can read.
Processes keep their ids and see the node's network: ranks meet, and the agent finds and counts them, as elsewhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mount:
    """A folder of the node, and where it is inside."""

    source: str
    target: str
    read_only: bool = False

    @property
    def text(self) -> str:
        """`source:target[:ro]`."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True)
class Container:
    """What a task is to find inside."""

    image: str
    workdir: str
    mounts: tuple[Mount, ...]
    variables: tuple[str, ...]
    """Names of the environment variables that it gets, with the values that the runner has them with."""
    gpus: tuple[int, ...] = ()
    """Indices on the node; empty: virtual ones."""


Line = Callable[[str, Container, Sequence[str]], list[str]]


def podman(program: str, inside: Container, command: Sequence[str]) -> list[str]:
    """GPUs by the Container Device Interface (`nvidia-ctk cdi generate`)."""
    line = [program, "run", "--rm", "--network=host", "--pid=host", "--ipc=host", "--security-opt=label=disable"]
    line += [f"--device=nvidia.com/gpu={index}" for index in inside.gpus]
    line += [f"--volume={mount.text}" for mount in inside.mounts]
    line += [f"--env={name}" for name in inside.variables]
    return [*line, f"--workdir={inside.workdir}", "--entrypoint=", inside.image, *command]


def apptainer(program: str, inside: Container, command: Sequence[str]) -> list[str]:
    """All GPUs of the node are there inside (`--nv`); CUDA_VISIBLE_DEVICES says which are the task's."""
    line = [program, "exec", "--cleanenv", *(("--nv",) if inside.gpus else ())]
    line += [f"--bind={mount.text}" for mount in inside.mounts]
    local = "://" in inside.image or inside.image.startswith(("/", "./")) or inside.image.endswith(".sif")
    return [*line, f"--pwd={inside.workdir}", inside.image if local else f"docker://{inside.image}", *command]


def enroot(program: str, inside: Container, command: Sequence[str]) -> list[str]:
    """The image is a container that was created, or a squashfs file. GPUs by NVIDIA_VISIBLE_DEVICES."""
    line = [program, "start", "--rw"]
    for mount in inside.mounts:
        options = f"x-create=dir,bind{',ro' if mount.read_only else ''}"
        line += ["--mount", f"{mount.source}:{mount.target}:none:{options}"]
    for name in inside.variables:
        line += ["--env", name]
    # It has no option for the working directory.
    return [*line, inside.image, "/bin/sh", "-c", 'cd "$0" && exec "$@"', inside.workdir, *command]


RUNNERS: dict[str, Line] = {"podman": podman, "apptainer": apptainer, "enroot": enroot}
"""{program: its command line}, in the order of preference."""


def variables_for(runner: str, variables: Mapping[str, str], gpus: Sequence[int]) -> dict[str, str]:
    """What the runner itself is to have in its environment, so that the task gets these variables."""
    if runner == "apptainer":
        return {**variables, **{f"APPTAINERENV_{name}": value for name, value in variables.items()}}
    if runner == "enroot" and gpus:
        return {**variables, "NVIDIA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    return dict(variables)


def found_runner(wanted: str, path: str | None) -> str:
    """The runner that this node uses; empty: none.

    Args:
        wanted: `auto`, `none`, or one of the runners.
        path: where programs are looked for.
    """
    names = {"auto": tuple(RUNNERS), "none": ()}.get(wanted, (wanted,))
    return next((name for name in names if shutil.which(name, path=path)), "")
