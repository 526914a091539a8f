"""How a loss falls: the best epoch, the first that is as good, and how long nothing has improved."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.lifecycle import curves
from libs.lifecycle.curves import Curve, Epoch


def curve_of(losses: Sequence[float], *, ratio: float = curves.WITHIN) -> Curve:
    """One epoch of ten GPU seconds after another."""
    curve = Curve()
    for number, loss in enumerate(losses, 1):
        curve = curves.take(curve, Epoch(epoch=number, loss=loss, gpu_s=10.0 * number), ratio)
    return curve


def near_and_best(curve: Curve) -> tuple[float, float]:
    assert curve.near_best is not None and curve.best is not None
    return curve.near_best.epoch, curve.best.epoch


def test_the_best_epoch_and_the_first_within_a_thousandth_of_it():
    curve = curve_of([2.0, 1.0005, 1.4, 1.0, 1.0, 1.2])
    assert near_and_best(curve) == (2, 4)
    assert curve.unimproved == 4  # what came after epoch 2 was no improvement by a thousandth


def test_many_small_steps_are_an_improvement_together():
    curve = curve_of([1.0, 0.9996, 0.9992, 0.9988, 0.9984])
    assert curve.improved is not None and curve.improved.epoch == 4


def test_a_loss_below_zero_is_measured_by_its_size():
    assert near_and_best(curve_of([-1.0, -5.0, -5.004])) == (2, 3)


def test_an_epoch_below_the_last_begins_the_curve_anew():
    curve = curve_of([1.0, 0.5, 0.4])
    curve = curves.take(curve, Epoch(epoch=1, loss=3.0, gpu_s=50.0))
    assert near_and_best(curve) == (1, 1) and curve.epochs == 1


def test_the_same_epoch_told_again_changes_nothing():
    curve = curve_of([1.0, 0.5])
    curve = curves.take(curve, Epoch(epoch=2, loss=0.1, gpu_s=50.0))
    assert curve.epochs == 2 and curve.best is not None and curve.best.loss == 0.5


@given(st.lists(st.floats(-10, 10, allow_nan=False), min_size=1, max_size=40), st.sampled_from([0.001, 0.05, 0.5]))
def test_what_is_kept_of_a_curve_is_what_the_whole_would_say(losses: list[float], ratio: float):
    best = min(losses)
    near = next(number for number, loss in enumerate(losses, 1) if loss <= best + ratio * abs(best))
    assert near_and_best(curve_of(losses, ratio=ratio)) == (near, losses.index(best) + 1)


def test_a_long_curve_is_kept_in_a_few_epochs():
    curve = curve_of([1000.0 / number for number in range(1, 5001)])
    assert len(curve.lows) <= 6
    assert curve.best is not None and curve.best.loss == pytest.approx(0.2)
