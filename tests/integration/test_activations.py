"""Activations that go to the host beside what else uses hooks of autograd, with all of torch: in own processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGIN = """
import torch
from torch_agent.harness.memory import activations as module
from tests.unit.torch_agent.test_activations import LIMIT, SIZE, WIDTH, Chain, CpuCopies, boundary, minibatch, same

module.SMALLEST_BYTES = SIZE
copies = CpuCopies()
activations = module.Activations(torch, copies, "cpu", 50 * SIZE)
"""
TRANSFORMS = """
boundary(activations, LIMIT, LIMIT + 20 * SIZE)
minibatch(Chain())
gone = copies.out_bytes
assert gone
found = torch.func.grad(lambda x: x.square().sum())(torch.ones(WIDTH))
assert torch.equal(found, torch.full((WIDTH,), 2.0))
boundary(activations, LIMIT, LIMIT + 20 * SIZE)
minibatch(Chain())
assert copies.out_bytes == gone, "nothing goes any more"
"""
COMPILED = """
model = Chain(2)
expected = minibatch(model)
boundary(activations, LIMIT, LIMIT + 20 * SIZE)
copies.allocated_bytes = LIMIT
assert same(minibatch(torch.compile(model, backend="aot_eager")), expected)
"""


@pytest.mark.parametrize("script", [TRANSFORMS, COMPILED], ids=["transforms of functions", "a compiled model"])
def test_a_script_computes_the_same(script: str):
    ended = subprocess.run(
        [sys.executable, "-c", BEGIN + script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
