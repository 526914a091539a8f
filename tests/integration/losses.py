"""Runs training scripts that know of nothing, and leaves every loss that they have computed gradients of.

python losses.py FOLDER script.py... [-- ARGUMENT...]   # in FOLDER/script.py.losses one a line, as float.hex() has it
"""

import os
import runpy
import sys
import time
from pathlib import Path

import torch

losses: list[str] = []
backward = torch.Tensor.backward


def noted(self, *args, **kwargs):
    losses.append(float(self.detach()).hex())
    time.sleep(float(os.environ.get("PAUSE_S", "0")))  # for who wants to catch it in the middle
    return backward(self, *args, **kwargs)


def main(folder: Path, scripts: list[str], arguments: list[str]) -> None:
    torch.Tensor.backward = noted
    for script in scripts:
        losses.clear()
        sys.argv = [script, *arguments]
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
        (folder / f"{Path(script).name}.losses").write_text("\n".join(losses))


if __name__ == "__main__":
    given = sys.argv[2:]
    mark = given.index("--") if "--" in given else len(given)
    main(Path(sys.argv[1]), given[:mark], given[mark + 1 :])
