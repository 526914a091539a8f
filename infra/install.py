"""`make setup`: an environment with the `sanjaya` command and what tests need. Time and size are said first.

Standard library only: it runs before anything is installed. pip shows its own progress.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAST_PYTHON = (3, 11, 4)
TORCH = "torch>=2.4"
INDEX = "SANJAYA_TORCH_INDEX"
MBIT_PER_S = 100
"""Of the line for which times are said."""
UNPACKED_MB_PER_S = 15
"""What pip unpacks and compiles on a slow disk."""


class SetupError(Exception):
    """What is wrong, what was expected, and what to type."""


@dataclass(frozen=True)
class Size:
    """In GB: what is downloaded, where nothing is in pip's cache, and what is on disk afterwards."""

    download: float
    disk: float

    def __add__(self, other: Size) -> Size:
        return Size(self.download + other.download, self.disk + other.disk)

    def __str__(self) -> str:
        return f"about {self.download:.1f} GB to download, {self.disk:.1f} GB on disk"

    @property
    def minutes(self) -> str:
        """From the download alone to a slow disk."""
        downloaded_s = self.download * 8000 / MBIT_PER_S
        least = max(1, round(downloaded_s / 60))
        return f"{least} to {max(least + 1, round((downloaded_s + self.disk * 1000 / UNPACKED_MB_PER_S) / 60))} minutes"


PACKAGES, CPU_BUILD, DEFAULT_BUILD = Size(0.3, 1.1), Size(0.2, 0.8), Size(3.0, 5.4)


@dataclass(frozen=True)
class Torch:
    """Which torch is installed, and why."""

    requirement: str
    source: tuple[str, ...]
    """Options of pip that say where it is found."""
    size: Size
    why: str


def choose(pip: Sequence[str], index: str, gpu: bool) -> Torch:
    """The build of torch that this machine needs.

    Args:
        pip: the command.
        index: URL of the package index that the user has named; empty: none.
        gpu: whether there is an NVIDIA GPU.

    Raises:
        SetupError: the named index has no torch for this Python.
    """
    if index:
        source = ("--index-url", index)
        version = _offered(pip, source)
        if version is None:
            raise SetupError(
                f"{INDEX}={index}: no {TORCH} for Python {sys.version_info[0]}.{sys.version_info[1]} is found there; "
                "expected the URL of a package index that has it  try: make setup TORCH=none"
            )
        size = CPU_BUILD if "+cpu" in version else DEFAULT_BUILD
        return Torch(f"torch=={version}", source, size, f"{version} from the index that {INDEX} names")
    if gpu:
        return Torch(TORCH, (), DEFAULT_BUILD, "the default build: there is an NVIDIA GPU here")
    source = ("--no-index",)
    version = _offered(pip, source)
    if version is not None and "+cpu" in version:
        return Torch(f"torch=={version}", source, CPU_BUILD, f"{version}, found on this disk by pip's find-links")
    return Torch(
        TORCH,
        (),
        DEFAULT_BUILD,
        "the default build, with CUDA's libraries although there is no NVIDIA GPU here: no CPU build was found on this "
        f"disk (pip's find-links); one would be {CPU_BUILD}: name an index that has it in {INDEX}, or say TORCH=none",
    )


def _offered(pip: Sequence[str], source: Sequence[str]) -> str | None:
    """The version that pip would take from there, if any."""
    look = [*pip, "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-", *source, TORCH]
    said = subprocess.run(look, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return json.loads(said.stdout)["install"][0]["metadata"]["version"] if said.returncode == 0 else None


def has_nvidia_gpu() -> bool:
    """Whether the driver is there, also under WSL."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def install(folder: Path, lock: Path, editable: Sequence[Path], torch: bool) -> None:
    """Make the environment, or bring it up to date.

    Args:
        folder: of the environment.
        lock: the versions of all packages but torch.
        editable: projects that are run where they lie.
        torch: whether torch is installed.

    Raises:
        SetupError: this Python is too old, there is no room, torch is not where the user says, or pip has failed (its
            own words are above).
    """
    began = time.monotonic()
    refuse_an_old_python(sys.version_info[:3])
    _say(f"packages of {lock.name}, for the command, the services and the tests: {PACKAGES}")
    venv.create(folder, symlinks=True, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    chosen = choose(pip, os.environ.get(INDEX, ""), has_nvidia_gpu()) if torch else None
    total = PACKAGES + chosen.size if chosen else PACKAGES
    _say(
        f"torch: {chosen.why}"
        if chosen
        else "without torch, which jobs and some tests need; add it by: make clean setup"
    )
    _say(f"together: {total}; {total.minutes} at {MBIT_PER_S} Mbit/s, less where pip has them in its cache")
    _refuse_a_full_disk(folder, total)
    if chosen:
        _pip(pip, "torch", "--no-deps", *chosen.source, chosen.requirement)
    _pip(pip, "packages", "--requirement", str(lock), *([chosen.requirement] if chosen else []))
    if editable:
        projects = [word for path in editable for word in ("--editable", str(path))]
        _pip(pip, "this project", "--no-deps", *projects)
    _say(f"ready in {time.monotonic() - began:.0f} s: {folder / 'bin'}")


def refuse_an_old_python(version: tuple[int, ...]) -> None:
    """Before anything is downloaded: pip would say so of the project, which it installs last.

    Raises:
        SetupError: the tarfile of this Python does not refuse archives that leave their directory.
    """
    if version < LEAST_PYTHON:
        seen, least = (".".join(map(str, each)) for each in (version, LEAST_PYTHON))
        raise SetupError(
            f"{sys.executable} is Python {seen}; expected {least} or later  try: make setup PYTHON=/path/to/python3"
        )


def _refuse_a_full_disk(folder: Path, total: Size) -> None:
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < total.disk:
        raise SetupError(
            f"the disk of {folder} has {free_gb:.1f} GB free; expected {total.disk:.1f} GB or more  "
            "try: make setup TORCH=none, or a clone on another disk"
        )


def _pip(pip: Sequence[str], what: str, *arguments: str) -> None:
    _say(f"installing {what}")
    if subprocess.run([*pip, "install", "--progress-bar", "on", *arguments], check=False).returncode:
        raise SetupError(f"pip could not install {what} (see above); what it has installed is kept  try: make setup")


def _say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make setup", description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--torch", choices=("auto", "none"), default="auto", help="make setup TORCH=none")
    options = parser.parse_args(arguments)
    try:
        install(options.venv, ROOT / "requirements.lock", (ROOT, ROOT / "torch_agent"), options.torch != "none")
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
