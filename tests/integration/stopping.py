"""What the scripts beside it share: which process this is, and where it waits for the test that drives it."""

import os
import sys
import time
from pathlib import Path

RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
STOPS = [int(number) for number in os.environ.get("STOP_AFTER", "").split(",") if number]


def stop_after(number):
    """Of the batches that STOP_AFTER names: say so, and wait until it may go on."""
    folder = Path(sys.argv[1])
    if number in STOPS:
        (folder / f"stopped-{number}.{RANK}").touch()
        while not (folder / f"go-{number}").exists():
            time.sleep(0.01)
