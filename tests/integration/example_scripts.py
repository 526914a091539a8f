"""The example scripts, and the losses that they leave."""

from __future__ import annotations

import os
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "torch_agent" / "examples"
LOSSES = str(Path(__file__).with_name("losses.py"))
ALL = ("mlp.py", "cnn.py", "autoencoder.py", "lstm.py", "transformer.py")
SCRIPTS = ALL if "SANJAYA_THOROUGH" in os.environ else ("mlp.py", "transformer.py")
"""Those that are compared to the bit; all of them take some minutes."""
STEPS = 160


def losses_of(folder: Path, *scripts: str) -> list[str]:
    """The command that runs scripts and leaves their losses in the folder."""
    paths = [str(EXAMPLES / script) for script in scripts]
    return [sys.executable, LOSSES, str(folder), *paths, "--", "--steps", str(STEPS)]


def losses_in(folder: Path, script: str) -> list[str]:
    """What a script has left, one per mini-batch."""
    return (folder / f"{script}.losses").read_text().split()
