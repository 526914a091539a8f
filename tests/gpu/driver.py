"""How long the driver takes to move a process's memory off the GPU and back; it moves the context, too.

python -m tests.gpu.driver BYTES      # the process: holds so many bytes, adds them up when it gets a line, says the sum
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch_agent.driver.interface import Driver, DriverFailed

SIZES = (0, 300_000_000, 5_000_000_000)


def driver_checkpoints(sizes: Sequence[int] = SIZES) -> Iterator[dict[str, Any]]:
    """One row per size, or one that says why there are none."""
    driver = Driver.load()
    if driver is None or not torch.cuda.is_available():
        yield {"note": "no NVIDIA driver with a checkpoint interface here"}
        return
    for size in sizes:
        yield _measured(driver, size)


def _measured(driver: Driver, size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.gpu.driver", str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        before = _sum(process)
        try:
            began = time.perf_counter()
            driver.take_off(process.pid)
            off = time.perf_counter()
            driver.bring_back(process.pid)
            back = time.perf_counter()
        except DriverFailed as error:
            process.kill()
            return {"bytes": size, "note": str(error)}
        same = _sum(process) == before
        process.stdin.close()  # type: ignore[union-attr]
    return {"bytes": size, "off_ms": _ms(off - began), "back_ms": _ms(back - off), "same_result": same}


def _sum(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


def hold(size: int) -> None:
    """Until standard input ends."""
    held = torch.arange(max(1, size // 4), device="cuda", dtype=torch.int32)
    for _ in sys.stdin:
        print(int(held.sum()), flush=True)


if __name__ == "__main__":
    hold(int(sys.argv[1]))
