"""Guests change their places at random, beside owners that come and go; each runs again, as its script writes down."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended, NodeJoined
from libs.contracts.placement import ResumeTask, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.testing.builders import launch
from libs.testing.thorough import often
from tests.integration.agent_case import AgentCase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("cc") is None, reason="the memory of virtual GPUs needs a C compiler"),
]

CAPACITY = 500_000_000
GPUS = (0, 1)
BOUND_S = 90.0
"""A guest that may run does so again after this time at the latest: it makes room in 10 s, its owner counts as stable
after 60 s."""
SCRIPT = """
import sys
import libs.testing.quick_torch
import time, torch
from pathlib import Path

torch.set_num_threads(1)
folder = Path(sys.argv[1])
layer = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
kept = torch.zeros(5_000_000)
data = torch.randn(1, 64).expand(2**40, 64)  # without an end
with (folder / "steps").open("ab", buffering=0) as steps:
    for batch in torch.utils.data.DataLoader(data, batch_size=8):
        optimizer.zero_grad()
        (layer(batch).square().mean() + kept[:64].mean()).backward()
        optimizer.step()
        steps.write(b".")
        if (folder / "end").exists():
            break
        time.sleep(0.02)
"""


class Places:
    """Two guests and at most one owner on the GPUs of one agent."""

    def __init__(self, case: AgentCase, folder: Path, luck: random.Random) -> None:
        self.case, self._folder, self.luck = case, folder, luck
        self.places: dict[str, int] = {}
        """{guest: its GPU}."""
        self.attempts: dict[str, int] = {}
        self.owner: tuple[str, int] | None = None
        self.owners = 0

    def folder(self, job_id: str) -> Path:
        folder = self._folder / f"of {job_id}"
        folder.mkdir(exist_ok=True)
        return folder

    async def begin(self, job_id: str, gpu: int, role: str) -> None:
        attempt = self.attempts[job_id] = self.attempts.get(job_id, 0) + 1
        command = [sys.executable, "-c", SCRIPT, str(self.folder(job_id))]
        await self.case.order(launch(job_id, *command, attempt=attempt, gpu_indices=[gpu], role=role))
        await self.fact(JobStarted, job_id)

    async def fact(self, kind: type, job_id: str) -> JobResumed:
        """The next one of the job's newest attempt, within the bound."""

        def is_it(found: object) -> bool:
            return (found.job_id, found.attempt) == (job_id, self.attempts[job_id])  # type: ignore[attr-defined]

        async with asyncio.timeout(BOUND_S):
            return await self.case.until(kind, is_it)  # type: ignore[no-any-return]

    async def goes_on(self, job_id: str) -> None:
        """Until its script has done five mini-batches more."""
        path, since_s = self.folder(job_id) / "steps", time.monotonic()
        before = path.stat().st_size if path.exists() else 0
        while not path.exists() or path.stat().st_size < before + 5:
            assert time.monotonic() - since_s < BOUND_S, f"{job_id} does not run again: {self.case.facts[-10:]}"
            await asyncio.sleep(0.05)

    def resume(self, guest: str, gpu: int) -> ResumeTask:
        self.places[guest] = gpu
        return ResumeTask(node_id="n1", job_id=guest, attempt=self.attempts[guest], gpu_indices=[gpu], role="guest")

    # What happens.

    async def moves(self, guest: str) -> None:
        """Suspended, and resumed on the other GPU."""
        await self.pauses(guest, 1 - self.places[guest])

    async def moves_at_once(self, guest: str) -> None:
        """Told to go on elsewhere while it runs."""
        await self.case.order(self.resume(guest, 1 - self.places[guest]))
        resumed = await self.fact(JobResumed, guest)
        assert resumed.gpu_indices == [self.places[guest]]

    async def pauses(self, guest: str, gpu: int | None = None) -> None:
        """Suspended, and resumed where it was."""
        await self.case.order(SuspendTask(node_id="n1", job_id=guest, attempt=self.attempts[guest]))
        await self.fact(JobSuspended, guest)
        await self.case.order(self.resume(guest, self.places[guest] if gpu is None else gpu))
        resumed = await self.fact(JobResumed, guest)
        assert resumed.gpu_indices == [self.places[guest]]

    async def is_expelled(self, guest: str) -> None:
        """Stopped, and begun again on any GPU."""
        reason = Reason(code="Test", message="")
        await self.case.order(
            StopTask(node_id="n1", job_id=guest, attempt=self.attempts[guest], grace_s=0.0, reason=reason)
        )
        await self.fact(JobExited, guest)
        self.places[guest] = self.luck.choice(GPUS)
        await self.begin(guest, self.places[guest], "guest")

    async def owner_comes_or_goes(self, guest: str) -> None:
        """The owner of any GPU."""
        if self.owner is None:
            self.owners += 1
            self.owner = f"owner-{self.owners}", self.luck.choice(GPUS)
            await self.begin(*self.owner, "owner")
            await self.goes_on(self.owner[0])
        else:
            (self.folder(self.owner[0]) / "end").touch()
            await self.fact(JobExited, self.owner[0])
            self.owner = None


async def test_each_guest_runs_again_whatever_its_place_is_changed_to(tmp_path: Path):
    luck = random.Random(36)
    async with AgentCase(tmp_path, virtual_gpus=2, gpu_memory_bytes=CAPACITY) as case:
        await case.fact(NodeJoined)
        places = Places(case, tmp_path, luck)
        for guest in ("a", "b"):
            places.places[guest] = luck.choice(GPUS)
            await places.begin(guest, places.places[guest], "guest")
        changes: list[Callable] = [places.moves, places.moves, places.moves_at_once, places.pauses]
        changes += [places.is_expelled, places.owner_comes_or_goes]
        for _ in range(often(8, thorough=200)):
            await luck.choice(changes)(luck.choice(("a", "b")))
            for guest in places.places:
                await places.goes_on(guest)
        for job_id in (*places.places, *([places.owner[0]] if places.owner is not None else [])):
            (places.folder(job_id) / "end").touch()
            await places.fact(JobExited, job_id)
