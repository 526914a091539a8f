"""A limit that changes all the time: not a bit of the results changes, and the process keeps to it (AntMan, 3.1.1)."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch_agent.environment import limited
from torch_agent.harness import inject_path
from torch_agent.harness.allowance import Allowance
from torch_agent.harness.control import allow, create_control
from torch_agent.harness.page import Memory, PageReading
from torch_agent.pages import pages

from libs.testing.thorough import often
from tests.integration.example_scripts import EXAMPLES, LOSSES, SCRIPTS, losses_in

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the memory of virtual GPUs needs a C compiler")

CHANGES = often(12, thorough=100)
KNOWN, WHOLE = 4, 2
"""Mini-batches until the demand is known; and until a limit counts for a whole one."""
MOST = KNOWN + WHOLE * (CHANGES + 1)
STEPS = MOST + 4
GPU_BYTES = 1 << 30
BLOCK_BYTES = 16384
"""What sizes are rounded up to."""
PATIENCE_S = 240.0
TRAINER = Path(__file__).with_name("trainer_script.py")


class Training:
    """One training process that does as many mini-batches as it is let, with the harness, a limit, and no agent."""

    def __init__(self, folder: Path, library: Path, command: list[str], **environment: str) -> None:
        self._folder, self._pages = folder, folder / "pages"
        self._pages.mkdir(parents=True)
        create_control(self._pages)
        self.goes_to(KNOWN)
        path = os.pathsep.join((inject_path(), os.environ.get("PYTHONPATH", "")))
        plain = {
            **os.environ,
            **environment,
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "SANJAYA_HARNESS_DIR": str(self._pages),
            "SANJAYA_GPU_MEMORY_LIMIT_BYTES": str(GPU_BYTES),
            "GATE": str(folder / "gate"),
        }
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(command, env=limited(plain, library), stdout=output, stderr=output)

    def goes_to(self, minibatches: int) -> None:
        """Let it do so many, and begin another one."""
        (self._folder / "gate.new").write_text(str(minibatches))
        (self._folder / "gate.new").rename(self._folder / "gate")

    def limit(self, limit_bytes: int | None) -> int:
        """Returns the number of the change."""
        return allow(self._pages, Allowance(memory_limits=(limit_bytes,)))

    def after(self, minibatches: int) -> Memory:
        """Its memory at the boundary of that mini-batch: it waits in the next one."""
        deadline = time.monotonic() + PATIENCE_S
        while self._losses <= minibatches:  # its page is written at the boundary part by part
            said = (self._folder / "output").read_text()
            assert self.process.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.002)
        page = self._page()
        assert page is not None
        assert page.minibatches_total == minibatches and page.memory is not None
        return page.memory

    @property
    def _losses(self) -> int:
        """Those of the mini-batch in which it waits included."""
        return sum(len(path.read_text().splitlines()) for path in self._folder.glob("*.losses"))

    def _page(self) -> PageReading | None:
        return next(iter(pages(self._pages)), None)

    @property
    def private_bytes(self) -> int:
        """Memory of its own that it has, as the kernel counts it."""
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found.group(1)) * 1024


def command(folder: Path, script: Path, *arguments: str) -> list[str]:
    """Runs it and leaves its losses in the folder."""
    return [sys.executable, LOSSES, str(folder), str(script), "--", *arguments]


def has_changing_limits(folder: Path, library: Path, script: Path, *arguments: str, **variables: str) -> None:
    """Compare a run under random limits with one that is left alone."""
    alone, training = folder / "alone", folder / "training"
    alone.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    training_alone = subprocess.Popen(command(alone, script, *arguments), env=environment, stdout=subprocess.DEVNULL)
    process = Training(training, library, command(training, script, *arguments), **variables)
    try:
        _change_limits(process, random.Random(script.name))
        process.goes_to(sys.maxsize)
        assert process.process.wait(PATIENCE_S) == 0, (training / "output").read_text()
    finally:
        process.process.kill()
        process.process.wait()
        assert training_alone.wait(PATIENCE_S) == 0
    losses = losses_in(training, script.name)
    assert losses == losses_in(alone, script.name) and len(losses) == STEPS


def _change_limits(training: Training, chance: random.Random) -> None:
    at, had = KNOWN, 0
    whole = training.after(at)
    demand = whole.demand_bytes
    assert demand > 0 and whole.host_bytes == whole.minibatch_host_bytes == 0
    for turn in range(CHANGES):
        # The least, the most, and whatever lies between.
        part = (0.1, 1.2)[turn] if turn < 2 else chance.uniform(0.1, 1.2)
        limit = int(part * demand)
        number = training.limit(limit)
        at += WHOLE
        training.goes_to(at)
        found = training.after(at)
        assert found.applied == number
        assert found.device_bytes <= limit + BLOCK_BYTES, f"{part:.0%}: cached blocks are gone first"
        in_use = found.device_bytes - found.cached_bytes + found.host_bytes
        assert found.demand_bytes >= in_use > 0
        if part < 0.75:  # under a limit no block is larger than its tensor: a little less is needed
            assert max(found.host_bytes, found.minibatch_host_bytes) > 0, "the limit binds"
        if part >= 1.15:
            assert found.host_bytes == 0, "all is home"
        had += part < 0.75
    assert had > CHANGES // 4
    training.limit(None)
    at += WHOLE
    training.goes_to(at)
    found = training.after(at)
    assert (found.host_bytes, at) == (0, MOST), "all is home within two mini-batches"


@pytest.mark.thorough
@pytest.mark.parametrize("script", SCRIPTS)
def test_losses_are_the_same_to_the_bit_whatever_the_limit_is(tmp_path: Path, library: Path, script: str):
    has_changing_limits(tmp_path, library, EXAMPLES / script, "--steps", str(STEPS))


@pytest.mark.thorough
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_so_are_those_of_a_hugging_face_trainer(tmp_path: Path, library: Path):
    arguments = ("--max_steps", str(STEPS), "--width", "20000")
    # It imports more of torch than scripts do that are to begin soon.
    has_changing_limits(tmp_path, library, TRAINER, *arguments, SANJAYA_THOROUGH="1")


LARGE = """
import torch
torch.manual_seed(0)
state = [torch.randn(1_000_000, requires_grad=True) for _ in range(40)]
optimizer = torch.optim.SGD(state, lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    loss = sum(part[:1000].square().mean() for part in state)
    loss.backward()
    optimizer.step()
"""


def test_what_leaves_the_device_leaves_the_process(tmp_path: Path, library: Path):
    """160 MB of state, as the kernel counts them."""
    script = tmp_path / "large.py"
    script.write_text(LARGE)
    training = Training(tmp_path / "training", library, command(tmp_path / "training", script))
    try:
        training.after(KNOWN)
        training.limit(20_000_000)
        training.goes_to(KNOWN + 3)
        small = training.after(KNOWN + 3)
        small_bytes = training.private_bytes
        assert small.device_bytes <= 20_000_000 and small.host_bytes > 140_000_000
        training.limit(None)
        training.goes_to(KNOWN + 6)
        whole = training.after(KNOWN + 6)
        assert whole.host_bytes == 0
        assert training.private_bytes - small_bytes > 0.8 * small.host_bytes
        training.goes_to(sys.maxsize)
        assert training.process.wait(PATIENCE_S) == 0
    finally:
        training.process.kill()
        training.process.wait()
