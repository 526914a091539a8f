"""A small throughput table that is computed, not measured: for trying things out when there is no table at hand.

The time of one step on one GPU is a sum of three parts: what the host does (the same everywhere), arithmetic, and
memory traffic; GPU types differ in how fast they do the last two. So models that keep the host busy gain little
from a fast GPU and models full of arithmetic gain a lot, which is what heterogeneity-aware policies live on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

from libs.sim.throughputs import FORMAT, Throughputs, parse_throughputs

GPU_COUNTS = (1, 2, 4, 8)
SPREAD_PENALTY = 5.0
"""How many times longer gradients are under way between servers than inside one."""
CONTENTION = 1.06
"""Two jobs on one GPU disturb each other by this factor even when it has room for both."""


@dataclass(frozen=True)
class Gpu:
    """Speeds relative to the reference type."""

    arithmetic: float
    memory: float
    memory_gib: float


@dataclass(frozen=True)
class Model:
    """Parts of one step on one reference GPU, in seconds, and the needed GPU memory."""

    name: str
    batch_size: int | None
    host_s: float
    arithmetic_s: float
    memory_s: float
    exchange_s: float
    """Exchange of gradients between the GPUs of one server, for many GPUs."""
    memory_gib: float

    def step_s(self, gpu: Gpu) -> float:
        """One step on one GPU."""
        return self.host_s + self.arithmetic_s / gpu.arithmetic + self.memory_s / gpu.memory

    def busy_ratio(self, gpu: Gpu) -> float:
        """Part of a step during which the GPU works."""
        return 1.0 - self.host_s / self.step_s(gpu)

    def steps_per_s(self, gpu: Gpu, gpus: int, consolidated: bool = True) -> float:
        """Of the whole job: every GPU does one step's worth of data, then all exchange their gradients."""
        exchange_s = self.exchange_s * 2 * (gpus - 1) / gpus * (1.0 if consolidated else SPREAD_PENALTY)
        return gpus / (self.step_s(gpu) + exchange_s)


GPUS = {
    "v100": Gpu(arithmetic=1.0, memory=1.0, memory_gib=16.0),
    "p100": Gpu(arithmetic=0.46, memory=0.8, memory_gib=16.0),
    "k80": Gpu(arithmetic=0.11, memory=0.24, memory_gib=12.0),
}
MODELS = (
    Model("ResNet-18", 64, host_s=0.004, arithmetic_s=0.026, memory_s=0.012, exchange_s=0.003, memory_gib=3.0),
    Model("ResNet-50", 32, host_s=0.006, arithmetic_s=0.085, memory_s=0.034, exchange_s=0.009, memory_gib=7.0),
    Model("ResNet-50", 64, host_s=0.008, arithmetic_s=0.170, memory_s=0.052, exchange_s=0.009, memory_gib=12.5),
    Model("Transformer", 64, host_s=0.010, arithmetic_s=0.060, memory_s=0.045, exchange_s=0.012, memory_gib=6.0),
    Model("LM", 20, host_s=0.003, arithmetic_s=0.002, memory_s=0.010, exchange_s=0.003, memory_gib=4.0),
    Model("Recommendation", 1024, host_s=0.065, arithmetic_s=0.001, memory_s=0.012, exchange_s=0.004, memory_gib=5.0),
    Model("CycleGAN", 1, host_s=0.010, arithmetic_s=0.190, memory_s=0.025, exchange_s=0.010, memory_gib=9.0),
    Model("A3C", None, host_s=0.120, arithmetic_s=0.003, memory_s=0.022, exchange_s=0.001, memory_gib=1.5),
)


def packed(a: Model, b: Model, gpu: Gpu, gpus: int) -> tuple[float, float]:
    """Steps per second of each while they share GPUs; 0 when they do not fit in memory together.

    Together they slow down as far as the GPU would have to be busy for more than all of the time.
    """
    if a.memory_gib + b.memory_gib > gpu.memory_gib:
        return 0.0, 0.0
    slower = CONTENTION * max(1.0, a.busy_ratio(gpu) + b.busy_ratio(gpu))
    return a.steps_per_s(gpu, gpus) / slower, b.steps_per_s(gpu, gpus) / slower


def computed_document() -> dict[str, Any]:
    """The table as `throughputs/1`: every model on 1, 2, 4 and 8 GPUs, alone and in pairs, on three types."""
    return {
        "format": FORMAT,
        "source": "computed by the product's own formula; nothing of it was measured",
        "gpu_types": list(GPUS),
        "isolated": [
            {
                **_config(model, gpus),
                "consolidated": consolidated,
                "steps_per_s": {
                    name: round(model.steps_per_s(gpu, gpus, consolidated), 4) for name, gpu in GPUS.items()
                },
            }
            for model in MODELS
            for gpus in GPU_COUNTS
            for consolidated in ((True, False) if gpus > 1 else (True,))
        ],
        "colocated": [
            _pair(a, b, gpu_type, gpus)
            for gpus in GPU_COUNTS
            for a, b in combinations_with_replacement(MODELS, 2)
            for gpu_type in GPUS
        ],
    }


@cache
def computed_throughputs() -> Throughputs:
    """The table, ready for use."""
    return parse_throughputs(computed_document(), "computed rates")


def _config(model: Model, gpus: int) -> dict[str, Any]:
    return {"model": model.name, "batch_size": model.batch_size, "gpus": gpus}


def _pair(a: Model, b: Model, gpu_type: str, gpus: int) -> dict[str, Any]:
    a_rate, b_rate = packed(a, b, GPUS[gpu_type], gpus)
    return {
        "a": _config(a, gpus),
        "b": _config(b, gpus),
        "gpu_type": gpu_type,
        "consolidated": True,
        "a_steps_per_s": round(a_rate, 4),
        "b_steps_per_s": round(b_rate, 4),
    }
