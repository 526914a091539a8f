"""What a configuration is like: its fingerprint, and the reference configuration that is nearest to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ENOUGH = 2.0
"""So many co-locations of its own make a fingerprint as trustworthy as it is near."""


@dataclass(frozen=True)
class Sample:
    """What is known of one configuration."""

    rates: Mapping[str, float]
    """{GPU type: steps per second alone}."""
    kept: Mapping[tuple[str, str], tuple[float, float | None]]
    """{(reference, GPU type): parts of their own speed that it and the reference keep together}; None: not known."""


@dataclass(frozen=True)
class Likeness:
    """The nearest reference."""

    name: str
    distance: float
    """Root of the mean squared difference of the fingerprints, in parts of the own speed."""
    evidence: int
    """Co-locations of its own that were measured."""

    @property
    def confidence(self) -> float:
        """From 0 (a guess) to 1: near, and not by its rates alone."""
        return max(0.0, 1.0 - self.distance) * (1.0 + self.evidence) / (1.0 + self.evidence + ENOUGH)


def nearest(sample: Sample, references: Mapping[str, Sample], gpu_types: Sequence[str]) -> Likeness | None:
    """The reference with the nearest completed fingerprint; None: there are none.

    A fingerprint is, per GPU type, the rate alone as a part of the best type's, and for each reference the parts of
    their own speed that both keep when they share GPUs.
    """
    if not references:
        return None
    import numpy as np  # here, because most processes that run placement never ask

    from libs.policies.estimation.completion import completed

    names = sorted(references)
    rows = [_fingerprint(each, names, gpu_types) for each in [sample, *(references[name] for name in names)]]
    whole = completed(np.array(rows))
    distances = np.sqrt(((whole[1:] - whole[0]) ** 2).mean(axis=1))
    best = int(np.argmin(distances))
    return Likeness(names[best], float(distances[best]), len(sample.kept))


def _fingerprint(sample: Sample, names: Sequence[str], gpu_types: Sequence[str]) -> list[float]:
    best = max(sample.rates.values(), default=0.0) or 1.0
    entries = [sample.rates.get(gpu_type, 0.0) / best for gpu_type in gpu_types]
    for name in names:
        for gpu_type in gpu_types:
            own, others = sample.kept.get((name, gpu_type), (math.nan, None))
            entries += [own, math.nan if others is None else others]
    return entries
