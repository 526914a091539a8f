"""The example scripts, and the losses that they leave."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "torch_agent" / "examples"
LOSSES = str(Path(__file__).with_name("losses.py"))
SCRIPTS = ("mlp.py", "cnn.py", "autoencoder.py", "lstm.py", "transformer.py")
STEPS = 160


def losses_of(folder: Path, *scripts: str) -> list[str]:
    """The command that runs scripts and leaves their losses in the folder."""
    paths = [str(EXAMPLES / script) for script in scripts]
    return [sys.executable, LOSSES, str(folder), *paths, "--", "--steps", str(STEPS)]


def losses_in(folder: Path, script: str) -> list[str]:
    """What a script has left, one per mini-batch."""
    return (folder / f"{script}.losses").read_text().split()
