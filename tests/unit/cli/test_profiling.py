"""`sanjaya profile`: what was measured of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from libs.cli.main import app_for
from libs.cli.profiling import described, drawing
from libs.contracts.agent import JobResumed, JobStarted, JobSuspended
from libs.contracts.base import Event
from libs.contracts.introspection import JobProfiled
from libs.inspect.profile import Profile, profile_of
from libs.testing.builders import envelope, records
from libs.testing.core_case import arrival

GOLDEN = Path(__file__).parents[2] / "golden" / "cell.jsonl"
MEBIBYTE = 1 << 20


def profiled(at_s: float, rate: float, **fields: float) -> JobProfiled:
    known = {"memory_peak_bytes": 300 * MEBIBYTE, "memory_min_bytes": 30 * MEBIBYTE, "gpu_utilisation_ratio": 0.5}
    return JobProfiled(
        job_id="j",
        attempt=1,
        window_start_s=at_s - 5.0,
        window_s=5.0,
        minibatches_total=10,
        rate_per_s=rate,
        loss=None,
        **{**known, **fields},  # type: ignore[arg-type]
    )


def history() -> Profile:
    """A job that starts at 10 s, stands still from 20 s to 32 s, and again from 50 s on."""
    about = {"job_id": "j", "attempt": 1, "node_id": "n1"}
    said: list[tuple[float, Event]] = [
        (9.0, arrival("j")),
        (10.0, JobStarted(pid=1, **about)),
        (16.0, profiled(16.0, 20.0)),
        (20.0, JobSuspended(parked=True, delay_s=0.04, parked_bytes=30 * MEBIBYTE, **about)),
        (32.0, JobResumed(**about)),
        (40.0, profiled(40.0, 10.0, memory_peak_bytes=310 * MEBIBYTE)),
        (50.0, JobSuspended(parked=True, delay_s=0.06, parked_bytes=30 * MEBIBYTE, **about)),
    ]
    found = profile_of(records(envelope(event, n, at=at_s) for n, (at_s, event) in enumerate(said)), "j")
    assert found is not None
    return found


def test_numbers_are_those_of_the_log():
    rows = dict(described(history()))
    assert rows["mini-batch"].startswith("66.7 ms")  # 15 a second over both windows
    assert "10.3 times the least" in rows["memory"]
    assert rows["GPU in use"] == "50%"
    assert rows["stood still"].startswith("2 times, 12") and "50 ms to the boundary" in rows["stood still"]


def test_a_job_of_which_nothing_was_measured_says_so():
    found = profile_of(records([JobStarted(job_id="j", attempt=1, node_id="n1", pid=1)]), "j")
    assert found is not None and described(found) == [("measured", "nothing yet")]
    assert profile_of(records([]), "j") is None


def test_the_picture_is_the_same_for_the_same_profile():
    assert drawing("j", history()).svg() == drawing("j", history()).svg()


def test_a_picture_without_a_page_around_it_says_what_it_shows():
    figure = drawing("j", history()).alone().figure
    assert figure.get_suptitle() == "Job j" and figure.get_supxlabel().startswith("The band of memory")
    [legend] = [axes.get_legend() for axes in figure.axes if axes.get_legend() is not None]
    assert [text.get_text() for text in legend.get_texts()] == ["most within a window", "least, between mini-batches"]


def test_the_command_reads_an_exported_log_and_draws(tmp_path: Path):
    from libs.inspect.sources import open_log

    with open_log(str(GOLDEN), cell="local") as log:
        job = next(r.envelope.event.subject for r in log.control() if isinstance(r.envelope.event, JobProfiled))
    out = tmp_path / "profile.png"
    done = CliRunner().invoke(app_for(), ["profile", job, "--log", str(GOLDEN), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "measured" in done.output and out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["unknown", "--log", str(GOLDEN)], 3), (["unknown", "--log", str(GOLDEN), "--out", "x.gif"], 2)],
)
def test_what_cannot_be_shown_is_said(arguments: list[str], code: int):
    assert CliRunner().invoke(app_for(), ["profile", *arguments]).exit_code == code
