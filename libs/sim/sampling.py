"""What introspection would say of GPUs that are used differently from now on: their loads, and their jobs' profiles.

Live, samples come each second and are condensed. Here use changes at known moments: the GPU is sampled once for each
change, when the window of the condensing has nothing else in it, by the same rule (`libs/node/loads.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from libs.contracts.agent import GpuSampled
from libs.contracts.base import Event
from libs.node.loads import WINDOW_S, Loads
from libs.sim.agenda import Agenda
from libs.sim.sharing.gpus import Gpu, Key, SharedGpus

Say = Callable[[str, Event], None]
"""Takes a key that no other fact has, and the fact."""


class Samples:
    """Of all GPUs of a cell."""

    def __init__(self, agenda: Agenda, say: Say) -> None:
        self._agenda, self._say = agenda, say
        self._loads = Loads()
        self._turns: dict[Gpu, int] = {}
        self._sampled: dict[Gpu, tuple[Key, ...]] = {}
        """The jobs that were there at the last sample."""

    def changed(self, gpu: Gpu, shared: SharedGpus) -> None:
        """The GPU is used differently from now on."""
        turn = self._turns[gpu] = self._turns.get(gpu, 0) + 1
        # Not awaited: nothing of a job depends on it.
        self._agenda.at(self._agenda.now_s + WINDOW_S, self._sample, gpu, turn, shared, awaited=False)

    def _sample(self, gpu: Gpu, turn: int, shared: SharedGpus) -> None:
        if self._turns[gpu] != turn:
            return
        node_id, index = gpu
        jobs = shared.jobs(gpu)
        if jobs != self._sampled.get(gpu):
            self._sampled[gpu] = jobs
            self._loads.forget(f"{node_id}:{index}")
        sample = GpuSampled(
            node_id=node_id,
            index=index,
            utilisation_ratio=round(shared.busy(gpu), 4),
            memory_used_bytes=shared.memory_bytes(gpu),
        )
        change = self._loads.take(sample, self._agenda.now_s, {})
        if change is not None:
            self._say(f"load/{node_id}/{index}/{turn}", change)
