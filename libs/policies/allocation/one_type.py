"""GPU types that an agnostic policy cannot tell apart, as one type: no linear program is needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from libs.policies.allocation.fairness import Found
from libs.policies.allocation.grouping import Classes
from libs.policies.allocation.model import Model

Floats = NDArray[np.float64]


def is_one_type(classes: Classes) -> bool:
    """Whether all classes run on all types, which look alike, and no jobs share GPUs."""
    return classes.agnostic and not classes.pairs and bool(classes.rates.all())


def with_idle_gpus(time: Floats, classes: Classes) -> Floats:
    """(C,) a member's part of its time on GPUs, raised by the same part of what is missing, until no GPU is left.

    The second objective of policies, the largest sum of normalised throughputs, is here the time of all GPUs in use,
    whichever job has it.
    """
    demand = classes.count * classes.width
    idle = float(classes.pool_gpus.sum() - demand @ time)
    missing = float(demand @ (1.0 - time))
    return time + (1.0 - time) * min(1.0, max(0.0, idle) / missing) if missing > 0 else time


def spread_as_mix(time: Floats, objective: float, classes: Classes) -> Found:
    """The allocation in which a member of each class has so much of its time, on the types as the cluster has them.

    No pool gives more than it has, because each gives its part of what all give together; and no other allocation is as
    evenly spread, which is what an agnostic policy prefers among its optima.
    """
    model = Model(classes)
    values = np.zeros(model.columns)
    values[: model.alone] = (time * classes.count)[model.alone_class] * classes.mix[model.alone_type]
    return Found(model, values, objective, 0)
