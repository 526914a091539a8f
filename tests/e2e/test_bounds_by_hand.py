"""`sanjaya set JOB --memory-limit --compute-share` on a running cell: jobs that train keep to what an operator says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.contracts.agent import ComputeShareChanged, JobStarted, MemoryLimitChanged
from libs.contracts.base import Event
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.test_rounds import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the memory of virtual GPUs needs a C compiler"),
]
SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
MB = 1_000_000
STATE_MB, LIMIT_MB = 60, 20
TRAINS = f"""
import sys, time
import libs.testing.quick_torch
import torch
from pathlib import Path

torch.set_num_threads(1)
kept = torch.zeros({STATE_MB} * 250_000)
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(torch.randn(1, 8, 64).expand(100_000, 8, 64), batch_size=None):
    optimizer.zero_grad()
    (layer(batch).square().mean() + kept[:64].mean()).backward()
    optimizer.step()
    if Path(sys.argv[1]).exists():
        break
    time.sleep(0.05)
"""


class BoundedCell:
    """A cell of two GPUs, with guests."""

    def __init__(self, client: Client, folder: Path, url: str) -> None:
        self._client, self._folder, self._url = client, folder, url

    def submit(self, name: str, of_class: str) -> str:
        command = [sys.executable, "-c", TRAINS, str(self._folder / f"end of {name}")]
        job = {"name": name, "command": command, "gpus": {"count": 1}, "class": of_class}
        job_id = str(self._client.submit(job)["id"])
        wait_until(lambda: self._client.job(job_id)["minibatches"] > 0)
        return job_id

    def set(self, *arguments: str) -> tuple[int, str]:
        """The exit status of `sanjaya set`, and all that it has written."""
        line = [SANJAYA, "set", *arguments, "--gateway", self._url]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def facts(self, kind: type[Event], job_id: str) -> list[Any]:
        return [envelope.event for envelope in self.log() if _is(envelope.event, kind, job_id)]

    def log(self) -> list[Any]:
        path = self._folder / "log.jsonl"
        path.write_bytes(b"".join(self._client.export()))
        return checked(path)

    def last(self, kind: type[Event], job_id: str, **expected: Any) -> Any:
        """The newest fact of this kind, as soon as it has these values."""
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = self.facts(kind, job_id)[-1:]
            return bool(found) and all(getattr(found[0], name) == value for name, value in expected.items())

        wait_until(is_there)
        return found[0]

    def end(self, name: str, job_id: str) -> None:
        (self._folder / f"end of {name}").touch()
        wait_until(lambda: self._client.job(job_id)["state"] == "SUCCEEDED")


def _is(event: Event, kind: type[Event], job_id: str) -> bool:
    return isinstance(event, kind) and event.subject == job_id


def test_jobs_keep_to_what_an_operator_says(tmp_path: Path):
    plan = CellPlan(state_dir=tmp_path / "cell", gateway_port=free_port(), agents=1, gpus_per_agent=2)
    with Cell(plan), Client(plan.gateway_url) as client:
        client.set_policy("antman")
        cell = BoundedCell(client, tmp_path, plan.gateway_url)
        guest = cell.submit("guest", "opportunistic")
        owner = cell.submit("owner", "guaranteed")  # on the other GPU: it disturbs no guest there

        status, said = cell.set(owner, "--memory-limit", f"{LIMIT_MB}MB")
        assert status == 0 and "is bounded so" in said, said
        limited = cell.last(MemoryLimitChanged, owner, to_bytes=LIMIT_MB * MB)
        assert limited.reason.code == "BoundedByOperator" and limited.from_bytes is None
        assert limited.device_bytes <= LIMIT_MB * MB and limited.host_bytes > (STATE_MB - LIMIT_MB) * MB * 0.9

        assert cell.set(guest, "--compute-share", "0.3", "--memory-limit", f"{LIMIT_MB}MB")[0] == 0
        assert cell.last(ComputeShareChanged, guest, to_ratio=0.3).from_ratio == 1.0
        assert cell.last(MemoryLimitChanged, guest, to_bytes=LIMIT_MB * MB).host_bytes > 0

        for job_id in (owner, guest):
            status, said = cell.set(job_id, "--memory-limit", "none", "--compute-share", "none")
            assert status == 0 and "is not bounded any more" in said, said
        assert cell.last(MemoryLimitChanged, owner, to_bytes=None).from_bytes == LIMIT_MB * MB
        assert cell.last(ComputeShareChanged, guest, to_ratio=1.0)

        for arguments, status, message in (
            (("--memory-limit", "20000000"), 2, "expected a size with a unit, as 2GB"),
            (("--memory-limit", "much"), 2, "expected a size with a unit, as 2GB"),
            (("--memory-limit", "500KB"), 2, "greater than or equal to 1000000"),
            (("--memory-limit", "900TB"), 2, "which the largest GPU of the cell has"),
            (("--compute-share", "1.5"), 2, "expected a number from 0 to 1"),
            (("--compute-share", "-0.1"), 2, "expected a number from 0 to 1"),
            (("--compute-share", "half"), 2, "expected a number from 0 to 1"),
        ):
            assert (found := cell.set(guest, *arguments))[0] == status and message in found[1], (arguments, found)

        cell.end("owner", owner)
        cell.end("guest", guest)
        status, said = cell.set(owner, "--memory-limit", f"{LIMIT_MB}MB")
        assert status == 2 and "has ended (SUCCEEDED)" in said, said
        assert len(cell.facts(JobStarted, owner)) == len(cell.facts(JobStarted, guest)) == 1
    assert nothing_left_of(tmp_path) == []
