"""The throughput estimator: gaps of a table are filled, and a configuration is known by its fingerprint."""

from __future__ import annotations

import numpy as np
import pytest

from libs.policies.estimation.completion import completed
from libs.policies.estimation.fingerprints import Sample, nearest


def test_gaps_of_a_matrix_of_low_rank_are_filled():
    luck = np.random.default_rng(0)
    whole = luck.random((20, 2)) @ luck.random((2, 15))
    gaps = np.where(luck.random(whole.shape) < 0.25, np.nan, whole)
    filled = completed(gaps)
    known = ~np.isnan(gaps)
    assert (filled[known] == pytest.approx(whole[known])) and not np.isnan(filled).any()
    by_means = np.abs(np.nanmean(gaps, axis=0) - whole)[~known].mean()
    assert np.abs(filled - whole)[~known].mean() < by_means / 2


def test_a_matrix_without_gaps_stays_as_it_is():
    whole = np.arange(6.0).reshape(2, 3)
    assert completed(whole) == pytest.approx(whole)


REFERENCES = {
    "busy": Sample({"v100": 4.0, "k80": 1.0}, {("busy", "v100"): (0.5, 0.5), ("idle", "v100"): (0.8, 0.7)}),
    "idle": Sample({"v100": 4.0, "k80": 1.0}, {("busy", "v100"): (0.7, 0.8), ("idle", "v100"): (0.9, 0.9)}),
}


def test_the_twin_of_a_reference_is_recognised_by_what_it_keeps():
    like = nearest(Sample({"v100": 8.0, "k80": 2.0}, {("busy", "v100"): (0.7, 0.8)}), REFERENCES, ["v100", "k80"])
    assert like is not None and (like.name, like.evidence) == ("idle", 1)


def test_evidence_makes_confident():
    alone = Sample({"v100": 4.0, "k80": 1.0}, {})
    seen = Sample(alone.rates, REFERENCES["idle"].kept)
    guess, known = (nearest(sample, REFERENCES, ["v100", "k80"]) for sample in (alone, seen))
    assert guess is not None and known is not None
    assert known.distance == pytest.approx(0.0) and known.confidence > guess.confidence


def test_without_references_nothing_is_estimated():
    assert nearest(Sample({"v100": 1.0}, {}), {}, ["v100"]) is None
