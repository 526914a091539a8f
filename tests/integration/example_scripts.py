"""The example scripts, and the losses that they leave."""

from __future__ import annotations

import sys
from pathlib import Path

from libs.testing.thorough import cases

EXAMPLES = Path(__file__).parents[2] / "torch_agent" / "examples"
LOSSES = str(Path(__file__).with_name("losses.py"))
SCRIPTS = cases("mlp.py", "transformer.py", thorough=("cnn.py", "autoencoder.py", "lstm.py"))
"""Those that are compared to the bit; all of them take some minutes."""
STEPS = 160


def losses_of(folder: Path, *scripts: str) -> list[str]:
    """The command that runs scripts and leaves their losses in the folder."""
    paths = [str(EXAMPLES / script) for script in scripts]
    return [sys.executable, LOSSES, str(folder), *paths, "--", "--steps", str(STEPS)]


def losses_in(folder: Path, script: str) -> list[str]:
    """What a script has left, one per mini-batch."""
    return (folder / f"{script}.losses").read_text().split()
