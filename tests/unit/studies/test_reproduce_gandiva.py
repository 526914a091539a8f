"""The study of the Gandiva paper, in a very small size."""

from __future__ import annotations

import pytest

from libs.cli.executing import execute
from libs.contracts.bad_input import BadInput
from libs.studies.experiments.runs import Result
from libs.studies.generators.gandiva import GPU_TYPE, MODELS, GandivaWorkload
from libs.studies.report.verdicts import Verdict
from libs.studies.reproduce.gandiva import Size, study


def test_the_workload_is_the_same_for_a_seed_and_uses_every_model():
    workload = GandivaWorkload(jobs=60, jobs_per_hour=20.0)
    rates = workload.rates()
    jobs = workload.draw(3, rates)
    assert jobs == workload.draw(3, rates) != workload.draw(4, rates)
    assert {job.model for job in jobs} == {model.name for model in MODELS}
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)


def test_pairs_keep_what_the_table_says():
    rates = GandivaWorkload().rates()
    assert rates.packed_rate(("VAE", None, 1), ("VAE", None, 1), GPU_TYPE) == 100.0
    assert rates.packed_rate(("LSTM", None, 1), ("LSTM", None, 1), GPU_TYPE) == pytest.approx(4.2)


@pytest.mark.parametrize("field", [{"jobs": 0}, {"jobs_per_hour": float("nan")}])
def test_nonsense_is_refused(field: dict[str, float]):
    with pytest.raises(BadInput):
        GandivaWorkload(**field)


def test_claims_are_measured_or_said_not_to_be():
    found = study(Size(gpus=4, jobs=40, trials=5))
    results = [Result(spec, execute(spec)) for spec in found.runs]
    rows = {row.claim_id: row for row in found.judge(results)}
    assert rows["early-feedback"].verdict is Verdict.HOLDS
    assert rows["early-turns"].verdict is Verdict.HOLDS
    assert rows["migration-jct"].measured is not None
    assert rows["automl-table3-4"].verdict is Verdict.NOT_MEASURED, "among so few trials none is good enough"
    played = {result.spec.cell_id: result for result in results}
    drawings = [
        drawing
        for chapter in found.chapters
        for drawing in chapter.draw([played[spec.cell_id] for spec in chapter.runs])
    ]
    assert [drawing.name for drawing in drawings] == [
        "early-feedback",
        "early-jct",
        "migration-jct",
        "automl-best",
    ]
