"""Data in files of many: what is wrong in the last of them is named by a job's trial, with file, row and column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.cli.cell import Cell
from libs.testing.leftovers import nothing_left_of
from libs.testing.thorough import often

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow, which is optional")

from tests.bench._data_sets import FORMATS, WRONG
from tests.e2e.trial_data import found_in_trial, plan_in, start

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

BYTES = often(4_000_000, thorough=1_000_000_000)
"""Of a data set."""


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("trial-data")
    with Cell(plan_in(folder)) as running:
        start(running)
        yield running
    assert nothing_left_of(folder) == []


@pytest.fixture(scope="module", params=list(FORMATS))
def form(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def data(form: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set that is as its schema says."""
    folder = tmp_path_factory.mktemp(form)
    FORMATS[form].write(folder, BYTES)
    return folder


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_in_the_last_file_is_named_in_the_trial_and_the_gang_never_starts(
    cell: Cell, data: Path, form: str, wrong: str
):
    place = FORMATS[form].add_wrong(data, wrong)
    found = found_in_trial(cell, data, form)
    assert found.places == [place]
    assert place.file in found.first and (place.row is None or f"row {place.row}" in found.first)
    assert (found.failed.failure, found.failed.steps, found.widths) == ("incorrect_inputs", 0, [1])
    print(f"{form}, {wrong}: found after {found.took_s:.1f} s in {found.rows} rows")
