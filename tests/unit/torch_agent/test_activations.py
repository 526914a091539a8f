"""Activations that go to the host between forward and backward; the device is the CPU, and copies take their time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_agent.harness.memory import activations as module
from torch_agent.harness.memory.activations import AHEAD, Activations

WIDTH = 1024
"""One record of so many floats is the smallest that goes."""
SIZE = 4 * WIDTH
LIMIT = 100 * SIZE


class Event:
    """Over when it has been waited for, or asked for often."""

    def __init__(self) -> None:
        self.is_over, self._asked = False, 0

    def query(self) -> bool:
        self._asked += 1
        self.is_over = self.is_over or self._asked > 4
        return self.is_over

    def synchronize(self) -> None:
        self.is_over = True


class CpuCopies:
    """Copies that are not whole at once."""

    def __init__(self) -> None:
        self.out_bytes = self.back_bytes = self.allocated_bytes = 0
        self.waited: list[Any] = []
        self.records = False
        self.most_out_bytes = 1000 * SIZE

    def out(self, tensor: Tensor) -> tuple[Tensor, Event]:
        if self.out_bytes + tensor.nbytes > self.most_out_bytes:
            raise RuntimeError("out of memory")
        self.out_bytes += tensor.nbytes
        return tensor.clone(), Event()

    def back(self, host: Tensor, like: Any, gone: Event) -> tuple[Tensor, Event]:
        assert gone.is_over
        self.back_bytes += host.nbytes
        return host, Event()

    def wait(self, event: Event) -> None:
        self.waited.append(event)

    def allocated(self) -> int:
        return self.allocated_bytes

    def are_recorded(self) -> bool:
        return self.records


class Chain(nn.Module):
    """Each of these operations saves what the one before it has made."""

    def __init__(self, length: int = 8) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.linspace(0.9, 1.1, length))

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = torch.tanh(x * scale)
        return x.square().sum()


@pytest.fixture
def copies() -> CpuCopies:
    return CpuCopies()


@pytest.fixture
def activations(copies: CpuCopies, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SMALLEST_BYTES", SIZE)
    found = Activations(torch, copies, "cpu", 50 * SIZE)
    yield found
    boundary(found, None, 0)


def boundary(activations: Activations, limit_bytes: int | None, most_in_use: int) -> int:
    """Returns what had gone."""
    gone = activations.ended()
    activations.want(limit_bytes, gone, most_in_use)
    return gone


def minibatch(model: nn.Module, records: int = 1) -> tuple[float, list[Tensor]]:
    torch.manual_seed(0)
    model.zero_grad()
    loss = model(torch.randn(records, WIDTH))
    loss.backward()
    return float(loss.detach()), [each.grad.clone() for each in model.parameters() if each.grad is not None]


def same(found: tuple[float, list[Tensor]], expected: tuple[float, list[Tensor]]) -> bool:
    return found[0] == expected[0] and all(map(torch.equal, found[1], expected[1]))


def test_as_much_goes_as_has_not_fitted_and_results_are_the_same_to_the_bit(
    activations: Activations, copies: CpuCopies
):
    model = Chain()
    expected = minibatch(model)
    assert boundary(activations, LIMIT, LIMIT) == 0
    assert same(minibatch(model), expected) and copies.out_bytes == 0, "all of it fits"
    boundary(activations, LIMIT, LIMIT + 1)
    assert same(minibatch(model), expected)
    assert copies.out_bytes == 5 * SIZE, "a part of the limit more than the byte that has not fitted"
    assert boundary(activations, LIMIT, LIMIT - 4 * SIZE) == 5 * SIZE
    assert same(minibatch(model), expected) and copies.out_bytes == 10 * SIZE, "without it, it would not fit"
    boundary(activations, LIMIT, LIMIT - 20 * SIZE)
    assert same(minibatch(model), expected) and copies.out_bytes == 10 * SIZE, "it fits again"


def test_what_goes_first_is_what_is_saved_first(activations: Activations, copies: CpuCopies):
    boundary(activations, 20 * SIZE, 20 * SIZE + 1)
    x = torch.randn(WIDTH, requires_grad=True)
    first = torch.tanh(x * 2)
    second = torch.tanh(first * 3)
    assert copies.out_bytes == SIZE, "with its margin a second one would be more than what is wanted"
    (first.sum() + second.sum()).backward()
    assert x.grad is not None and copies.back_bytes == 0, "it has not left the device yet: nothing waited for it"


def test_a_full_device_makes_forward_wait_until_copies_are_whole(activations: Activations, copies: CpuCopies):
    model = Chain()
    expected = minibatch(model)
    boundary(activations, LIMIT, LIMIT + 10 * SIZE)
    copies.allocated_bytes = LIMIT
    assert same(minibatch(model), expected)
    assert copies.back_bytes == copies.out_bytes, "each was gone before it was needed"
    assert len(copies.waited) >= copies.back_bytes // SIZE, "and is used when it has come"


def test_where_there_is_room_the_next_ones_come_before_they_are_needed(activations: Activations, copies: CpuCopies):
    boundary(activations, LIMIT, LIMIT + 20 * SIZE)
    copies.allocated_bytes = LIMIT
    x = torch.randn(WIDTH, requires_grad=True)
    made = x
    for _ in range(AHEAD + 3):
        made = torch.tanh(made)
    copies.allocated_bytes = 0
    node = made.grad_fn
    assert node is not None and copies.back_bytes == 0
    node._saved_result.sum()  # type: ignore[attr-defined]
    assert copies.back_bytes == (1 + AHEAD) * SIZE


def test_what_an_operation_saves_twice_goes_once(activations: Activations, copies: CpuCopies):
    boundary(activations, LIMIT, LIMIT + 20 * SIZE)
    x = torch.randn(WIDTH, requires_grad=True)
    result = torch.tanh(x)  # saves its result, which the next one saves as what it gets
    result.square().sum().backward()
    assert copies.out_bytes == SIZE


def test_what_is_there_between_minibatches_stays(activations: Activations, copies: CpuCopies):
    layer, data = nn.Linear(WIDTH, 2), torch.randn(1, WIDTH)
    boundary(activations, LIMIT, LIMIT + 20 * SIZE)
    layer(data).sum().backward()
    assert copies.out_bytes == 0


@pytest.mark.parametrize("records", [True, False])
def test_what_a_graph_is_captured_from_stays(activations: Activations, copies: CpuCopies, records: bool):
    copies.records = records
    boundary(activations, LIMIT, LIMIT + 20 * SIZE)
    torch.tanh(torch.randn(WIDTH, requires_grad=True))
    assert (copies.out_bytes == 0) is records


def test_in_each_part_of_an_accumulated_minibatch_as_much_goes(activations: Activations, copies: CpuCopies):
    model = Chain()
    boundary(activations, LIMIT, LIMIT + 1)
    for _ in range(3):
        minibatch(model)
    assert copies.out_bytes == 3 * 5 * SIZE
    assert boundary(activations, LIMIT, LIMIT) == 5 * SIZE


def test_the_host_has_at_most_what_it_may(activations: Activations, copies: CpuCopies):
    boundary(activations, LIMIT, LIMIT + 1000 * SIZE)
    minibatch(Chain(length=60))
    assert boundary(activations, LIMIT, LIMIT) == 50 * SIZE


def test_a_host_without_memory_is_asked_once_and_the_rest_stays(
    activations: Activations, copies: CpuCopies, capsys: pytest.CaptureFixture[str]
):
    model = Chain()
    expected = minibatch(model)
    for number in range(3):
        boundary(activations, LIMIT, LIMIT + 20 * SIZE)
        copies.most_out_bytes = 3 * (number + 1) * SIZE
        assert same(minibatch(model), expected)
        assert copies.out_bytes == copies.most_out_bytes
    assert capsys.readouterr().err.count("the host gives no more memory for activations: out of memory") == 1


def test_a_result_that_is_dropped_leaves_nothing_behind(activations: Activations, copies: CpuCopies):
    boundary(activations, LIMIT, LIMIT + 20 * SIZE)
    loss = Chain()(torch.randn(1, WIDTH))
    del loss
    boundary(activations, LIMIT, LIMIT)
    assert boundary(activations, LIMIT, LIMIT) == 0


def test_a_graph_that_is_kept_can_be_gone_through_again(activations: Activations, copies: CpuCopies):
    boundary(activations, LIMIT, LIMIT + 20 * SIZE)
    copies.allocated_bytes = LIMIT
    x = torch.randn(WIDTH, requires_grad=True)
    result = torch.tanh(torch.tanh(x)).sum()
    [first] = torch.autograd.grad(result, x, retain_graph=True)
    [second] = torch.autograd.grad(result, x)
    assert torch.equal(first, second)


def test_tensors_of_any_layout_come_back_as_they_were(activations: Activations, copies: CpuCopies):
    def trained() -> Tensor:
        x = torch.randn(4, 8, 16, 16).to(memory_format=torch.channels_last).requires_grad_()
        expanded = torch.tanh(x).mean(0, keepdim=True).expand(8, -1, -1, -1)
        (torch.tanh(x).transpose(1, 3) ** 2).sum().backward()
        (expanded * expanded).sum().backward()
        assert x.grad is not None
        return x.grad

    torch.manual_seed(0)
    expected = trained()
    boundary(activations, LIMIT, LIMIT + 40 * SIZE)
    copies.allocated_bytes = LIMIT
    torch.manual_seed(0)
    assert torch.equal(trained(), expected) and copies.out_bytes


def test_storages_that_have_ended_leave_no_number_behind_by_which_later_ones_would_stay(
    activations: Activations, copies: CpuCopies
):
    gradients = [torch.randn(WIDTH) for _ in range(50)]
    boundary(activations, LIMIT, LIMIT + 40 * SIZE)
    gradients.clear()
    minibatch(Chain(length=20))
    assert copies.out_bytes == 21 * SIZE, "what each operation has made, and the data"


def test_what_stays_is_looked_for_once_and_with_a_captured_graph_nothing_goes_for_good(
    activations: Activations, copies: CpuCopies, monkeypatch: pytest.MonkeyPatch
):
    looked: list[str] = []
    monkeypatch.setattr(module, "live_storages", lambda torch, kind: looked.append(kind))
    for number in range(3):
        boundary(activations, LIMIT, LIMIT + number * SIZE)
        minibatch(Chain())
    assert looked == ["cpu"] and not copies.out_bytes
    other = Activations(torch, copies, "cpu", 50 * SIZE)
    monkeypatch.setattr(module, "live_storages", lambda torch, kind: looked.append(kind) or [])
    for number in range(4):
        boundary(other, LIMIT, LIMIT + 20 * number * SIZE)
    boundary(other, None, 0)
    assert looked == ["cpu"] * 2
