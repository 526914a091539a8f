"""GPU types that an agnostic policy cannot tell apart, as one type: the same optima with fewer variables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from libs.policies.allocation.fairness import Found
from libs.policies.allocation.grouping import Classes
from libs.policies.allocation.model import Model


def merged(classes: Classes) -> Classes | None:
    """The problem with all GPUs of one type; None where classes do not run on all types, or share GPUs."""
    if not classes.agnostic or classes.pairs or not classes.rates.all():
        return None
    gpus = classes.pool_gpus.sum(keepdims=True)
    one = np.ones(1)
    return replace(
        classes,
        types=["any"],
        pool_of=np.zeros(1, dtype=np.int64),
        pool_gpus=gpus,
        mix=one,
        cost=np.zeros(1),
        rates=classes.rates[:, :1],
        agnostic=False,
    )


def spread_as_mix(found: Found, classes: Classes) -> Found:
    """What was found for `merged(classes)`, with each class's time on the types as the cluster has them.

    No pool gives more than it has, because each gives its part of what all give together; and no other allocation is as
    evenly spread, which is what an agnostic policy prefers among its optima.
    """
    model = Model(classes)
    values = np.zeros(model.columns)
    of_class = np.zeros(len(classes.count))
    of_class[found.model.alone_class] = found.values[: found.model.alone]
    values[: model.alone] = of_class[model.alone_class] * classes.mix[model.alone_type]
    return Found(model, values, found.objective, found.iterations)
