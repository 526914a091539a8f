"""Scripts of owners and guests that patch the DataLoader, never wait, never step, or fork: gates and signals work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from torch_agent.harness.allowance import GUEST, OWNER, Allowance
from torch_agent.harness.control import allow
from torch_agent.harness.gpu_page import GpuPage, create
from torch_agent.harness.page import PageReading

from tests.integration.test_harness import run

CASES = str(Path(__file__).with_name("sharing_troubles.py"))
MINIBATCHES = 20


def trained(folder: Path, case: str, role: str) -> tuple[list[PageReading], GpuPage]:
    """The pages that a script in this role leaves, and the page of its GPU."""
    shared = folder / "0.page"
    create(shared)
    prepared = folder / "prepared"
    prepared.mkdir()
    allow(prepared, Allowance(role=role, share_ratio=1.0))
    os.link(shared, prepared / "gpu-0")
    status, pages = run(folder, sys.executable, CASES, case, into=prepared)
    assert status == 0
    return pages, GpuPage(shared)


@pytest.mark.parametrize("case", ["patches_the_loader", "never_waits", "never_steps", "forks"])
def test_a_guest_passes_gates_whatever_its_script_does(tmp_path: Path, case: str):
    [page], _ = trained(tmp_path, case, GUEST)
    assert page.gate is not None and page.gate.gates > 2 * MINIBATCHES
    assert 0 < page.minibatches_total <= MINIBATCHES


@pytest.mark.parametrize("case", ["patches_the_loader", "never_waits", "never_steps", "forks"])
def test_an_owner_has_left_its_gpu_whatever_its_script_does(tmp_path: Path, case: str):
    [page], gpu = trained(tmp_path, case, OWNER)
    assert gpu.owner_pid == 0
    assert page.gate is not None and page.gate.closed_minibatches > 0
