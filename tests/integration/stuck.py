"""A DataLoader's worker that is in the middle of something when the signal ends it.

STUCK: in what; "lock": it holds the lock of the event by which torch tells workers to end; "message": it has written a
part of a batch. STUCK_AT: in which of its samples (1-based); it waits until the script has trained on BATCHES. It
leaves FOLDER/stuck.<rank>, and its successors go on.
"""

import os
import signal
import struct
import sys
import time
from pathlib import Path

from stopping import RANK

IN, AT = os.environ.get("STUCK"), int(os.environ.get("STUCK_AT", "0"))
BATCHES = 4
folder = Path(sys.argv[1])
samples = 0


def stick_in_the_middle():
    """To be called for every sample."""
    global samples
    samples += 1
    said = folder / f"stuck.{RANK}"
    if IN and samples == AT and not said.exists():
        while _batches_done() < BATCHES:
            time.sleep(0.01)
        worker = _of_the_worker()
        if IN == "lock":
            worker["done_event"]._cond.acquire()
        else:
            os.write(worker["data_queue"]._writer.fileno(), struct.pack("!i", 1 << 20) + b"a part of it")
        said.touch()
        while True:
            signal.pause()


def _batches_done():
    losses = folder / f"losses.{RANK}"
    return len(losses.read_text().splitlines()) if losses.exists() else 0


def _of_the_worker():
    """The variables of torch's loop that this worker runs."""
    frame = sys._getframe()
    while frame.f_code.co_name != "_worker_loop":
        frame = frame.f_back
    return frame.f_locals
