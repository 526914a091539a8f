"""Sums tensors over virtual ranks, to the same bits on however many processes these are.

Floating-point sums depend on their order. Here it is that of a fixed binary tree over the virtual ranks: a process
sums up its own subtree, then processes exchange their sums in pairs (recursive doubling). What cannot be paired (six
are two trees of two and one of two) is summed up from the left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .virtual import VirtualRanks

Tensors = list[torch.Tensor]
ADD: Any = torch._foreach_add_


class Tree:
    """Of one sum."""

    def __init__(self, ranks: VirtualRanks, distributed: Any) -> None:
        """Begin.

        Args:
            distributed: torch's, by which the processes meet; None where there is only one.
        """
        self._ranks, self._distributed = ranks, distributed
        self._leaves = 0
        self._subtrees: list[Tensors] = []
        """Sums that wait for an equally large neighbour, the largest first: no more than log2 of the leaves."""

    def add(self, leaf: Tensors) -> None:
        """What the next of this process's virtual ranks has; it may be changed from now on."""
        self._leaves += 1
        pairs = self._leaves
        while pairs % 2 == 0:
            left = self._subtrees.pop()
            ADD(left, leaf)
            leaf, pairs = left, pairs // 2
        self._subtrees.append(leaf)

    def total(self) -> Tensors:
        """The sum over all virtual ranks, the same on every process.

        Raises:
            RuntimeError: some of this process's have not been added.
        """
        if self._leaves != self._ranks.each:
            raise RuntimeError(f"sanjaya: {self._leaves} of the {self._ranks.each} parts of the batch were used")
        own = self._subtrees.pop()
        return own if self._ranks.world == 1 else _packed(own, self._exchange)

    def _exchange(self, own: torch.Tensor) -> torch.Tensor:
        distance = 1
        while distance < self._ranks.paired:
            own = own + self._from(self._ranks.rank ^ distance, own)
            distance *= 2
        if self._ranks.paired == self._ranks.world:
            return own
        sums = [torch.empty_like(own) for _ in range(self._ranks.world)]
        self._distributed.all_gather(sums, own)
        first, *others = sums[:: self._ranks.paired]
        for other in others:
            first = first + other
        return first

    def _from(self, partner: int, own: torch.Tensor) -> torch.Tensor:
        """The partner's sum, for ours."""
        distributed, theirs = self._distributed, torch.empty_like(own)
        sent = distributed.P2POp(distributed.isend, own, partner)
        received = distributed.P2POp(distributed.irecv, theirs, partner)
        for work in distributed.batch_isend_irecv([sent, received]):
            work.wait()
        return theirs


def _packed(tensors: Tensors, exchange: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
    """Exchange many tensors as few: one per type and device."""
    alike: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for place, tensor in enumerate(tensors):
        alike.setdefault((tensor.dtype, tensor.device), []).append(place)
    summed: dict[int, torch.Tensor] = {}
    for places in alike.values():
        flat = exchange(torch.cat([tensors[place].reshape(-1) for place in places]))
        parts = torch.split(flat, [tensors[place].numel() for place in places])
        for place, part in zip(places, parts, strict=True):
            summed[place] = part.view(tensors[place].shape)
    return [summed[place] for place in range(len(tensors))]
