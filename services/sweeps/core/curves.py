"""What a learning curve comes to: a mixture of power laws, fitted to the reports so far.

After Domhan et al. (IJCAI'15), the extrapolation that Gandiva's hyper-parameter searches use (OSDI'18, section 6.2):
many parametric curves are fitted, and each counts as much as it explains. Here they are value = a - b step^-c with
one c each, so that a fit is a straight line in step^-c, and the whole has a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from services.sweeps.core.state import Forecast, Report

EXPONENTS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
FEWEST_REPORTS = 3
"""A line through two points leaves nothing to judge it by."""
PRIOR_REPORTS = 1.0
PRIOR_NOISE = 0.1
"""Before anything is known the noise is this part of the spread of the values, with the weight of so many reports."""
LEAST_NOISE = 1e-6
DOUBT = 0.25
"""No curve is a power law: what is still to be gained is known to this part of itself."""


def forecast(reports: Sequence[Report], last_step: float) -> Forecast | None:
    """The value at `last_step`, None for fewer than three reports with positive steps.

    Args:
        reports: by step.
        last_step: at least the step of the last report; an earlier one counts as it.
    """
    seen = [report for report in reports if report.step > 0]
    if len(seen) < FEWEST_REPORTS:
        return None
    values = [report.value for report in seen]
    spread = max(values) - min(values)
    prior = max(PRIOR_NOISE * spread, LEAST_NOISE * (1 + max(map(abs, values)))) ** 2 * PRIOR_REPORTS
    horizon = max(last_step, seen[-1].step)
    return _mixture([_fit(seen, exponent, horizon, prior) for exponent in EXPONENTS])


class _Fit:
    """One curve's mean and variance at the horizon, and the logarithm of how well it explains the reports."""

    __slots__ = ("evidence", "mean", "variance")

    def __init__(self, mean: float, variance: float, evidence: float) -> None:
        self.mean, self.variance, self.evidence = mean, variance, evidence


def _fit(reports: Sequence[Report], exponent: float, horizon: float, prior: float) -> _Fit:
    """Least squares of value over x = step^-exponent."""
    count = len(reports)
    xs = [report.step**-exponent for report in reports]
    x_mean = sum(xs) / count
    y_mean = sum(report.value for report in reports) / count
    spread = sum((x - x_mean) ** 2 for x in xs)
    slope = sum((x - x_mean) * (report.value - y_mean) for x, report in zip(xs, reports, strict=True)) / spread
    squares = prior + sum(
        (report.value - y_mean - slope * (x - x_mean)) ** 2 for x, report in zip(xs, reports, strict=True)
    )
    noise = squares / (count - 2 + PRIOR_REPORTS)
    far = horizon**-exponent - x_mean
    gain = slope * (horizon**-exponent - xs[-1])
    variance = noise * (1 + 1 / count + far**2 / spread) + (DOUBT * gain) ** 2
    return _Fit(y_mean + slope * far, variance, -count / 2 * math.log(squares))


def _mixture(fits: Sequence[_Fit]) -> Forecast:
    most = max(fit.evidence for fit in fits)
    weights = [math.exp(fit.evidence - most) for fit in fits]
    total = sum(weights)
    mean = sum(weight * fit.mean for weight, fit in zip(weights, fits, strict=True)) / total
    square = sum(weight * (fit.variance + fit.mean**2) for weight, fit in zip(weights, fits, strict=True)) / total
    return Forecast(mean, math.sqrt(max(0.0, square - mean**2)))


def chance(found: Forecast, bar: float, *, maximize: bool) -> float:
    """How likely it is that the curve comes to `bar` or better, from 0 to 1."""
    missing = bar - found.mean if maximize else found.mean - bar
    if found.deviation == 0.0:
        return float(missing <= 0)
    return 0.5 * math.erfc(missing / (found.deviation * math.sqrt(2)))
