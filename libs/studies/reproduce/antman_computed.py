"""Claims about AntMan that need no runs: what its coordination comes to on one GPU, and what the generator draws."""

from __future__ import annotations

from collections.abc import Callable

from libs.sim.sharing.demands import Demand
from libs.sim.sharing.episodes import traded
from libs.studies.generators.antman_models import RESNET, SUPER_RESOLUTION, VGG16
from libs.studies.generators.antman_tasks import MINIBATCH_POINT, MODEL_POINT, draw_tasks

FIGURE_10 = (("SuperResolution", SUPER_RESOLUTION), ("VGG16", VGG16), ("ResNet-50", RESNET))
SHORT = 0.7
"""The GPU has this part of the memory that two guests ask for together."""


def _models_below() -> dict[str, float]:
    tasks = draw_tasks(0)
    return {"tested": sum(task.model_bytes <= MODEL_POINT[1] for task in tasks) / len(tasks)}


def _minibatches_below() -> dict[str, float]:
    tasks = draw_tasks(0)
    return {"tested": sum(task.minibatch_s <= MINIBATCH_POINT[1] for task in tasks) / len(tasks)}


def speeds_when_split(guests: tuple[Demand, ...]) -> tuple[float, float]:
    """(With equal parts of the memory, with what they have traded): the sum of speeds, each over its full one."""
    capacity = round(SHORT * sum(guest.memory_bytes for guest in guests))
    equal = [guest.speed_with(capacity // len(guests)) for guest in guests]
    limits = traded(capacity, guests)
    return sum(equal), sum(guest.speed_with(limit) for guest, limit in zip(guests, limits, strict=True))


def _trading() -> dict[str, float]:
    equal, after = speeds_when_split((RESNET, VGG16))
    return {"base": equal, "tested": after}


def _best_split() -> dict[str, float]:
    """What trading comes to over the best of nine splits of the memory."""
    guests = (RESNET, VGG16)
    capacity = round(SHORT * sum(guest.memory_bytes for guest in guests))
    splits = [(capacity * tenth // 10, capacity - capacity * tenth // 10) for tenth in range(1, 10)]
    best = max(sum(guest.speed_with(part) for guest, part in zip(guests, split, strict=True)) for split in splits)
    return {"base": best, "tested": speeds_when_split(guests)[1]}


COMPUTED: dict[str, Callable[[], dict[str, float]]] = {
    "model-sizes": _models_below,
    "minibatch-times": _minibatches_below,
    "trading": _trading,
    "best-split": _best_split,
}
"""{name: {role: value}}"""
