"""Runs a task's shim (`shim.py`): the program, which Python compiles at each start, as it does no module.

Usage: python -I -S run_shim.py TASK_FOLDER
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # isolated: the package may be nowhere else

from torch_agent import shim

if __name__ == "__main__":
    # Without the end of an interpreter: it would free one object after the other, a fifth of its CPU time.
    os._exit(shim.main(Path(sys.argv[1])))
