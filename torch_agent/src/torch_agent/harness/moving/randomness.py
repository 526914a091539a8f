"""The random numbers of a process: where every generator is that a training script draws from."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import torch

CUDA: Any = torch.cuda


class Randomness:
    """Of Python, NumPy and torch, on the host and on CUDA devices, and of generators that the script names."""

    def __init__(self, generators: Sequence[torch.Generator] = ()) -> None:
        self._generators = list(generators)

    def include(self, generator: object) -> None:
        """Know one more, unless this is none or is known."""
        if isinstance(generator, torch.Generator) and all(known is not generator for known in self._generators):
            self._generators.append(generator)

    def capture(self) -> dict[str, Any]:
        """Where all of them are."""
        numpy = sys.modules.get("numpy")
        return {
            "python": random.getstate(),
            "numpy": None if numpy is None else numpy.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": CUDA.get_rng_state_all() if CUDA.is_initialized() else [],
            "generators": [generator.get_state() for generator in self._generators],
        }

    def restore(self, states: dict[str, Any]) -> None:
        """Put all of them where they were; those that are not here (fewer devices, other generators) stay away.

        States are cloned: torch ignores their offset in their storage, and can crash on a view.
        """
        random.setstate(states["python"])
        numpy = sys.modules.get("numpy")
        if numpy is not None and states["numpy"] is not None:
            numpy.random.set_state(states["numpy"])
        torch.set_rng_state(states["torch"].clone())
        for index, state in enumerate(states["cuda"][: CUDA.device_count()]):
            CUDA.set_rng_state(state.clone(), index)
        for generator, state in zip(self._generators, states["generators"], strict=False):
            generator.set_state(state.clone())

    def seed(self, seed: int) -> None:
        """Begin all of them anew, with a seed below 2**63."""
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        if CUDA.is_initialized():
            CUDA.manual_seed_all(seed)
        for generator in self._generators:
            generator.manual_seed(seed)
