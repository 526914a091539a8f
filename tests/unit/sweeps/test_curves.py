"""What a learning curve comes to."""

from __future__ import annotations

import pytest

from services.sweeps.core.curves import chance, forecast
from services.sweeps.core.state import Forecast, Report


def power_law(limit: float, fall: float, exponent: float, steps: int) -> list[Report]:
    return [Report(step, limit - fall * step**-exponent) for step in range(1, steps + 1)]


@pytest.mark.parametrize("exponent", [0.3, 0.6, 1.2])
@pytest.mark.parametrize("limit", [0.6, 0.95])
def test_a_power_law_is_continued(limit: float, exponent: float):
    found = forecast(power_law(limit, 0.5, exponent, 8), 50.0)
    truth = limit - 0.5 * 50.0**-exponent
    assert found is not None
    assert found.mean == pytest.approx(truth, abs=0.03)
    assert abs(found.mean - truth) < 3 * found.deviation


def test_more_reports_make_it_surer():
    few, many = (forecast(power_law(0.9, 0.6, 0.5, count), 40.0) for count in (4, 20))
    assert few is not None and many is not None
    assert many.deviation < few.deviation / 2


def test_two_reports_say_nothing():
    assert forecast([Report(1, 0.1), Report(2, 0.2)], 10.0) is None
    assert forecast([Report(0, 0.1), Report(1, 0.2), Report(2, 0.2)], 10.0) is None


def test_a_constant_stays_what_it_is():
    found = forecast([Report(step, 0.1) for step in range(1, 6)], 100.0)
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert chance(found, 0.2, maximize=True) < 1e-6


def test_chances_add_up_and_turn_with_the_direction():
    found = Forecast(0.5, 0.1)
    assert chance(found, 0.5, maximize=True) == pytest.approx(0.5)
    assert chance(found, 0.6, maximize=True) + chance(found, 0.6, maximize=False) == pytest.approx(1.0)
    assert chance(Forecast(0.5, 0.0), 0.5, maximize=True) == 1.0
