"""A device's memory, out and in: every kind of tensor that a script may hold."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_agent.harness.parking.parking import Parker


def held_bytes() -> int:
    """The memory that this process alone holds, as the kernel counts it."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


@pytest.fixture
def parker() -> Parker:
    gc.collect()
    return Parker(torch)


def test_the_memory_is_off_the_device_and_comes_back(parker: Parker):
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(30)])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 1024)).sum().backward()
    optimizer.step()
    before, sums = held_bytes(), [float(p.detach().sum()) for p in model.parameters()]
    parked = parker.park()
    after = held_bytes()
    assert parked.bytes_parked >= 4 * 30 * 4 * 1024 * 1024  # parameters, gradients, and two moments of each
    assert before - after > 0.99 * parked.bytes_parked
    assert parked.bytes_left < parked.bytes_parked / 100
    parker.unpark()
    assert [float(p.detach().sum()) for p in model.parameters()] == sums
    assert held_bytes() - after > 0.98 * parked.bytes_parked


def kinds() -> dict[str, Any]:
    """Tensors that look at memory in every way, by name."""
    base = torch.randn(64, 64)
    shared = torch.randn(32).share_memory_()
    tied = nn.Linear(16, 16)
    tied.bias = nn.Parameter(tied.weight[0])
    leaf = torch.randn(9, requires_grad=True)
    (leaf * 3).sum().backward()
    return {
        "base": base,
        "view": base[3:7, ::2],
        "transposed": base.t(),
        "tied": tied.bias,
        "gradient": leaf.grad,
        "bfloat16": torch.randn(33).bfloat16(),
        "boolean": torch.rand(17) > 0.5,
        "complex": torch.randn(5, dtype=torch.complex64),
        "coo": torch.randn(6, 6).relu().to_sparse(),
        "csr": torch.randn(6, 6).relu().to_sparse_csr(),
        "empty": torch.empty(0),
        "scalar": torch.tensor(3.5),
        "shared": shared,
        "numpy": torch.from_numpy(torch.randn(8).numpy().copy()),
        "inference": nn.Parameter(torch.randn(3), requires_grad=False),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_every_kind_of_tensor_comes_back_as_it_was(parker: Parker):
    tensors = kinds()
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    addresses = {name: id(tensor) for name, tensor in tensors.items()}
    for _ in range(3):
        parker.park()
        assert tensors["base"].untyped_storage().nbytes() == 0
        parker.unpark()
    for name, tensor in tensors.items():
        as_dense, expected = (t.detach().to_dense() if "c" in name[:1] else t.detach() for t in (tensor, copies[name]))
        assert torch.equal(as_dense, expected), name
        assert id(tensor) == addresses[name]
    tensors["view"].fill_(7.0)
    assert float(tensors["base"][3, 0]) == 7.0  # still one memory


def test_objects_that_the_script_has_frozen_are_found(parker: Parker):
    tensor = torch.randn(1000)
    gc.freeze()
    try:
        parker.park()
        assert tensor.untyped_storage().nbytes() == 0
        parker.unpark()
    finally:
        gc.unfreeze()


def test_training_goes_on_as_if_nothing_had_been(parker: Parker):
    def losses(disturb: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Dropout(0.2), nn.Linear(30, 1))
        average = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        found = []
        for step in range(24):
            loss = (model(torch.randn(16, 20)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
            found += [loss.item(), float(average[0].weight.detach().sum())]
            if disturb and step % 5 == 2:
                parker.park()
                parker.unpark()
        return found

    assert losses(disturb=True) == losses(disturb=False)
