"""Runs training scripts that know of nothing, and leaves every loss that they have computed gradients of.

python losses.py FOLDER script.py... [-- ARGUMENT...]   # in FOLDER/script.py.losses one a line, as float.hex() has it

Each is written at once: a process that takes over from another goes on in the same file.
PAUSE_S: seconds between two. GATE: a file with the number of losses that it may come to for now.
"""

import libs.testing.quick_torch  # noqa: F401 - before torch

# isort: split
import os
import runpy
import sys
import time
from pathlib import Path

import torch

backward = torch.Tensor.backward


def noting(file):
    """`Tensor.backward` that notes the loss first."""
    gate = Path(os.environ["GATE"]) if "GATE" in os.environ else None

    def noted(self, *args, **kwargs):
        file.write(float(self.detach()).hex() + "\n")
        time.sleep(float(os.environ.get("PAUSE_S", "0")))  # for a test that wants to catch it in the middle
        while gate is not None and len(Path(file.name).read_text().split()) > int(gate.read_text()):
            time.sleep(0.01)
        return backward(self, *args, **kwargs)

    return noted


def main(folder: Path, scripts: list[str], arguments: list[str]) -> None:
    for script in scripts:
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).parent))
        with (folder / f"{Path(script).name}.losses").open("a", buffering=1) as file:
            torch.Tensor.backward = noting(file)
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    given = sys.argv[2:]
    mark = given.index("--") if "--" in given else len(given)
    main(Path(sys.argv[1]), given[:mark], given[mark + 1 :])
