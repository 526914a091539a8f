"""How busy GPUs are: samples of telemetry, condensed to the changes that decide where guests may be placed.

AntMan places opportunistic jobs on GPUs with a utilisation of less than M = 80 % over the past 10 s (OSDI'20, algorithm
1). So a change is said when the mean has crossed M, or has moved by a tenth; a GPU of which nothing was said first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from libs.contracts.agent import GpuSampled
from libs.contracts.envelope import Envelope
from libs.contracts.introspection import OWNER, GpuLoadChanged
from libs.kernel.ids import derived_id

WINDOW_S = 10.0
FREE_BELOW = 0.8
"""The paper's M."""
STEP = 0.1


class Loads:
    """The latest samples of each GPU. What was said is read back from control, so that a restart repeats nothing."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}
        self._told: dict[str, float] = {}

    def take(self, sample: GpuSampled, time_s: float, told: Mapping[str, float]) -> GpuLoadChanged | None:
        """Take one sample.

        Args:
            sample: of any GPU.
            time_s: when it was taken, by its node's clock.
            told: {`NODE:INDEX`: load of the last GpuLoadChanged on the log}.

        Returns:
            The change that is to be told, if there is one.
        """
        gpu = gpu_of(sample)
        samples = self._samples.setdefault(gpu, deque())
        samples.append((time_s, sample.utilisation_ratio))
        while samples and not time_s - WINDOW_S < samples[0][0] <= time_s:
            samples.popleft()
        load = round(sum(ratio for _, ratio in samples) / len(samples), 4)
        before = self._told.get(gpu, told.get(gpu))
        if before is not None and abs(load - before) < STEP and (load < FREE_BELOW) == (before < FREE_BELOW):
            return None
        self._told[gpu] = load
        return GpuLoadChanged(
            node_id=sample.node_id,
            index=sample.index,
            utilisation_ratio=load,
            window_s=WINDOW_S,
            memory_used_bytes=sample.memory_used_bytes,
        )

    def forget(self, gpu: str) -> None:
        """Other jobs run there: how busy it was with those before says nothing, and the next sample is told."""
        self._samples.pop(gpu, None)
        self._told.pop(gpu, None)

    def forget_all_but(self, nodes: Mapping[str, object]) -> None:
        """Forget the GPUs of nodes that are gone."""
        self._samples = {gpu: each for gpu, each in self._samples.items() if node_of(gpu) in nodes}
        self._told = {gpu: each for gpu, each in self._told.items() if node_of(gpu) in nodes}


def gpu_of(event: GpuSampled | GpuLoadChanged) -> str:
    """`NODE:INDEX`."""
    return f"{event.node_id}:{event.index}"


def node_of(gpu: str) -> str:
    """The node of `NODE:INDEX`."""
    return gpu.rpartition(":")[0]


def envelope(change: GpuLoadChanged, cause: Envelope) -> Envelope:
    """A change on its way to the log: its id follows from the sample that has brought it about."""
    return Envelope(
        id=derived_id(OWNER, f"load/{cause.id}", 0),
        source=OWNER,
        time_s=cause.time_s,
        event=change,
        causation_id=cause.id,
    )
