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


def spread_as_mix(time: Floats, objective: float, classes: Classes) -> Found:
    """The allocation that gives a member of each class so much of its time, (C,), on the types as the cluster has them.

    No pool gives more than it has, because each gives its part of what all give together; and no other allocation is as
    evenly spread, which is what an agnostic policy prefers among its optima.
    """
    model = Model(classes)
    values = np.zeros(model.columns)
    values[: model.alone] = (time * classes.count)[model.alone_class] * classes.mix[model.alone_type]
    return Found(model, values, objective, 0)
