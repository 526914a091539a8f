"""Grow and shrink as in Gandiva's figure 11: an elastic job takes what others leave on a server, and gives it back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_agent.harness import inject_path

from libs.client import Client
from libs.testing import quick_torch
from tests.e2e.test_rounds import wait_until

EXAMPLE = Path(__file__).parents[2] / "torch_agent" / "examples" / "elastic.py"
MOST = 4
WIDTHS = [1, 2, 4, 2, 1]
"""GPUs of the job in the course of the scenario, on a server of four."""
AHEAD = 30
"""Batches between the order to stop and the last one: every process has seen the order by then."""


class Growing:
    """The job, and the others on its server."""

    def __init__(self, client: Client, folder: Path, pause_s: float) -> None:
        """Submit it, on one GPU.

        Args:
            pause_s: rest per sample, in the place of a GPU's work.
        """
        self.client, self.folder = client, folder
        self.losses, self.stop = folder / "losses", folder / "stop"
        client.set_policy("gandiva")
        client.set_setting("migration", "grow_after_s", 1)
        client.set_setting("migration", "move_rest_s", 1)
        self.others = [self._other(MOST // 2)]
        wait_until(lambda: self._state(self.others[0]) == "RUNNING")
        command = [sys.executable, str(EXAMPLE), "--batches", "100000", "--pause", str(pause_s)]
        command += ["--losses", str(self.losses), "--stop", str(self.stop)]
        job: dict[str, Any] = {"name": "grows", "command": command, "gpus": 1, "elastic": f"1:{MOST}"}
        job["env"] = quick_torch.environment()
        self.job_id = str(client.submit(job)["id"])

    def goes_up_and_down(self, at_each_width: Callable[[], None], during_growth: Callable[[], None]) -> None:
        """Two GPUs when one is idle, four when the other job has left, two and one when others come."""
        self._has_changed(WIDTHS[:2], at_each_width)
        self.client.cancel(self.others.pop())
        wait_until(lambda: len(self.said("destination.reserved.v1")) == len(WIDTHS[:3]) - 1)
        during_growth()
        self._has_changed(WIDTHS[:3], at_each_width)
        for number, gpus in ((4, 2), (5, 1)):
            self.others.append(self._other(gpus))
            self._has_changed(WIDTHS[:number], at_each_width)
            wait_until(lambda: self._state(self.others[-1]) == "RUNNING")

    def ends(self) -> int:
        """Let it end, and the others with it. Returns its batches."""
        last = int(self.lines()[-1].split()[1]) + AHEAD
        self.stop.with_suffix(".part").write_text(str(last))
        self.stop.with_suffix(".part").rename(self.stop)
        wait_until(lambda: self._state(self.job_id) == "SUCCEEDED")
        for job_id in self.others:
            self.client.cancel(job_id)
        wait_until(lambda: all(self._state(job_id) == "CANCELLED" for job_id in self.others))
        return last

    def lines(self) -> list[str]:
        """Of its losses: time, batch and loss."""
        return self.losses.read_text().splitlines() if self.losses.exists() else []

    def widths(self) -> list[int]:
        """Those that it has had."""
        return [1, *(data["gpus"] for data in self.said("job.resized.v1"))]

    def said(self, kind: str) -> list[dict[str, Any]]:
        """What events of this type say."""
        return [event["data"] for event in self.client.events(type=kind)]

    def _has_changed(self, widths: list[int], at_each_width: Callable[[], None]) -> None:
        wait_until(lambda: self.widths() == widths)
        seen = len(self.lines())
        wait_until(lambda: len(self.lines()) > seen)
        at_each_width()

    def _other(self, gpus: int) -> str:
        job = {"name": "other", "command": ["sleep", "1000"], "gpus": gpus, "launcher": "command"}
        return str(self.client.submit(job)["id"])

    def _state(self, job_id: str) -> str:
        return str(self.client.job(job_id)["state"])


def undisturbed(folder: Path, batches: int) -> list[str]:
    """The job by hand on one GPU, for so many batches. Returns its lines."""
    losses = folder / "undisturbed"
    command = [sys.executable, str(EXAMPLE), "--batches", str(batches), "--losses", str(losses)]
    quick = quick_torch.environment().get("PYTHONPATH", "")
    given = {
        "PYTHONPATH": f"{inject_path()}{os.pathsep}{quick}",
        "OMP_NUM_THREADS": "1",
        "SANJAYA_VIRTUAL_RANKS": str(MOST),
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SANJAYA_")}
    subprocess.run(command, env={**inherited, **given}, check=True, timeout=600)
    return losses.read_text().splitlines()


def losses_of(lines: list[str]) -> list[str]:
    """Batch and loss."""
    return [line.split(maxsplit=1)[1] for line in lines]
