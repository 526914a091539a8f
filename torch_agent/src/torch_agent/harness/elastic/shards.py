"""A batch is run part by part, and its gradients are those of the whole: on one process as on many.

Every process draws the whole batch, and runs the parts of its virtual ranks. Parts have random numbers of their own
(dropout), and all of them begin with the same buffers (batch normalisation; those after the first part go on, as in
torch's DistributedDataParallel). So each process is in the same state after each batch, whatever their number.

With its gradients each process says whether it was asked to stand still. The sum tells all of them at once, so they do
so at the end of this very batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from .splitting import part_of, samples_in
from .tree import Tensors, Tree
from .virtual import VirtualRanks

SEEDS = 2**62
EXCHANGE_GRADIENTS = ("DistributedDataParallel", "FullyShardedDataParallel")


class RandomNumbers(Protocol):
    """Of every generator that a script draws from."""

    def capture(self) -> dict[str, Any]:
        """Where all of them are."""

    def restore(self, states: dict[str, Any]) -> None:
        """Put all of them where they were."""

    def seed(self, seed: int) -> None:
        """Begin all of them anew."""


class Shards:
    """Of one process of a job."""

    def __init__(
        self,
        ranks: VirtualRanks,
        distributed: Any,
        parts: Sequence[Any],
        randomness: RandomNumbers,
        asked: Callable[[], bool],
    ) -> None:
        """See `of`.

        Args:
            distributed: torch's, by which the processes meet; None where there is only one.
            parts: of the job: the models with buffers that count, the optimizers of parameters that are trained.
            randomness: of this process.
            asked: whether this process is to stand still.

        Raises:
            TypeError: a model exchanges gradients by itself.
            ValueError: there is no optimizer.
        """
        self._ranks, self._distributed, self._randomness, self._asked = ranks, distributed, randomness, asked
        self._models = [part for part in parts if isinstance(part, torch.nn.Module)]
        self._optimizers = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
        if any(type(model).__name__ in EXCHANGE_GRADIENTS for model in self._models):
            raise TypeError("sanjaya: an elastic Job takes the model itself, not one that exchanges gradients")
        if not self._optimizers:
            raise ValueError("sanjaya: an elastic Job has an optimizer among its parts")
        self._weights: list[float] = []
        self._under_way = self._agreed = False

    def of(self, batch: Any) -> Iterator[Any]:
        """This process's parts of a batch; when all have been used, `grad` of every parameter is the whole batch's.

        That is the mean over the samples, if the loss of a part is the mean over its samples.

        Raises:
            RuntimeError: the parts of the batch before were not all used.
            ValueError: the batch cannot be split.
        """
        if self._under_way:
            raise RuntimeError("sanjaya: the loop over the parts of the last batch was left early")
        self._under_way = True
        samples, total = samples_in(batch), self._ranks.total
        bounds = [number * samples // total for number in range(total + 1)]
        self._weights = [(bounds[n + 1] - bounds[n]) * total / samples for n in self._ranks.mine]
        seed = int(torch.randint(SEEDS, ()).item())
        goes_on_with = self._randomness.capture()
        parameters = self._parameters()
        before = [_taken(parameter) for parameter in parameters]
        buffers, tree = _Buffers(self._models), Tree(self._ranks, self._distributed)
        for number, weight in zip(self._ranks.mine, self._weights, strict=True):
            self._randomness.seed(seed + number)
            buffers.begin_a_part()
            if weight:
                yield part_of(batch, bounds[number], bounds[number + 1])
            buffers.end_a_part(number)
            tree.add([*_leaf(parameters, weight), self._vote(parameters[0])])
        *gradients, votes = self._mean(tree)
        self._agreed = self._distributed is not None and bool(votes.item() > 0)
        for parameter, gradient, earlier in zip(parameters, gradients, before, strict=True):
            parameter.grad = gradient if earlier is None else gradient.add_(earlier)
        buffers.agree(self._distributed)
        self._randomness.restore(goes_on_with)
        self._under_way = False

    def agreed(self) -> bool | None:
        """Whether one of the processes was asked to stand still before the last exchange; says so once.

        None where there is only one process, which needs no consent.
        """
        agreed, self._agreed = self._agreed, False
        return None if self._distributed is None else agreed

    def _vote(self, beside: torch.Tensor) -> torch.Tensor:
        return torch.tensor([float(self._asked())], dtype=beside.dtype, device=beside.device)

    def mean(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Over the samples of the last batch, on all processes; given one value for each part that this one had."""
        given, tree = iter(values), Tree(self._ranks, self._distributed)
        zero = torch.zeros_like(values[0]) if values else torch.zeros((), device=self._parameters()[0].device)
        for weight in self._weights:
            tree.add([next(given).detach() * weight if weight else zero.clone()])
        return self._mean(tree)[0]

    def _mean(self, tree: Tree) -> Tensors:
        sums = tree.total()
        torch._foreach_mul_(sums, 1.0 / self._ranks.total)
        return sums

    def _parameters(self) -> list[torch.nn.Parameter]:
        trained = [each["params"] for optimizer in self._optimizers for each in optimizer.param_groups]
        return [parameter for parameters in trained for parameter in parameters if parameter.requires_grad]


class _Buffers:
    """Of the models, while a batch is run."""

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        self._buffers = [buffer for model in models for buffer in model.buffers()]
        self._before = [buffer.clone() for buffer in self._buffers]
        self._after: Tensors = []

    def begin_a_part(self) -> None:
        self._set(self._before)

    def end_a_part(self, number: int) -> None:
        if number == 0:
            self._after = [buffer.clone() for buffer in self._buffers]

    def agree(self, distributed: Any) -> None:
        """On those after the first part."""
        if self._after:
            self._set(self._after)
        if distributed is not None:
            for buffer in self._buffers:
                distributed.broadcast(buffer, 0)

    def _set(self, values: Tensors) -> None:
        with torch.no_grad():
            for buffer, value in zip(self._buffers, values, strict=True):
                buffer.copy_(value)


def _taken(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """Its gradient, which it has no more."""
    gradient, parameter.grad = parameter.grad, None
    return gradient


def _leaf(parameters: Sequence[torch.nn.Parameter], weight: float) -> Tensors:
    """The gradients of one part; parameters that it did not use have none, which is zero."""
    gradients = [(_taken(parameter), parameter) for parameter in parameters]
    if any(gradient is not None and gradient.is_sparse for gradient, _ in gradients):
        raise TypeError("sanjaya: gradients of an elastic Job cannot be sparse")
    leaf = [torch.zeros_like(parameter) if gradient is None else gradient for gradient, parameter in gradients]
    leaf = [tensor.detach() for tensor in leaf]
    if weight not in (0.0, 1.0):
        torch._foreach_mul_(leaf, weight)
    return leaf
