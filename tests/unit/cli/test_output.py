"""What people and programs read."""

from __future__ import annotations

import json
import time

import pytest

from libs.cli import listing
from libs.cli.context import refused
from libs.cli.following import exit_code, moment, seconds
from libs.cli.jobs import place_or_reason
from libs.cli.listing import Listing, arranged, listed
from libs.cli.output import Column, Form, clock, count, duration, loss, pace, rate
from libs.client import ApiError
from libs.kernel.words import bytes_of

ROWS = [
    {"id": "j-1", "name": "a\tb\nc", "rate": 2.0},
    {"id": "j-2", "name": "d", "rate": None},
    {"id": "j-3", "name": "e", "rate": 10.0},
]
COLUMNS = (
    Column("ID", lambda r: r["id"]),
    Column("NAME", lambda r: r["name"]),
    Column("RATE", lambda r: rate(r["rate"]), runs_on=True),
    Column("MORE", lambda r: "more", wide=True),
)


@pytest.fixture(autouse=True)
def pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLICOLOR_FORCE", raising=False)


def printed(capsys: pytest.CaptureFixture[str], **how: object) -> str:
    listed(lambda: ROWS, COLUMNS, Listing(**how))  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_a_pipe_gets_one_line_a_row_and_no_colour(capsys: pytest.CaptureFixture[str]):
    assert printed(capsys).splitlines() == ["ID\tNAME\tRATE", "j-1\ta b c\t2.0/s", "j-2\td\t–", "j-3\te\t10.0/s"]
    assert printed(capsys, headers=False, form=Form.WIDE, limit=1) == "j-1\ta b c\t2.0/s\tmore\n"


def test_forms_for_programs(capsys: pytest.CaptureFixture[str]):
    assert json.loads(printed(capsys, form=Form.JSON)) == ROWS
    assert printed(capsys, form=Form.NAME).split() == ["j-1", "j-2", "j-3"]
    assert "- id: j-1\n" in printed(capsys, form=Form.YAML)


def test_a_terminal_gets_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    rows, columns = [{"state": "RUNNING"}], [Column("STATE", lambda r: r["state"])]
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    listed(lambda: rows, columns, Listing())
    assert "\x1b[32mRUNNING" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    listed(lambda: rows, columns, Listing())
    assert "\x1b[32m" not in capsys.readouterr().out


def test_sorting_puts_what_is_unknown_last(capsys: pytest.CaptureFixture[str]):
    assert [row["id"] for row in arranged(ROWS, Listing(sort="rate"))] == ["j-1", "j-3", "j-2"]
    assert [row["id"] for row in arranged(ROWS, Listing(sort="-rate", limit=2))] == ["j-3", "j-1"]
    with pytest.raises(SystemExit) as ended:
        arranged(ROWS, Listing(sort="rat"))
    assert ended.value.code == 2 and "did you mean 'rate'" in capsys.readouterr().err


def test_watching_in_a_pipe_appends_what_has_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    rounds = iter(
        [
            [{"id": "j-1", "name": "a", "rate": 1.0}],
            [{"id": "j-1", "name": "a", "rate": 2.0}],
            [{"id": "j-1", "name": "b", "rate": 3.0}, {"id": "j-2", "name": "c", "rate": None}],
        ]
    )
    monkeypatch.setattr(listing, "REDRAW_S", 0.0)
    with pytest.raises(StopIteration):
        listed(lambda: next(rounds), COLUMNS, Listing(watch=True))
    assert capsys.readouterr().out.splitlines() == ["ID\tNAME\tRATE", "j-1\ta\t1.0/s", "j-1\tb\t3.0/s", "j-2\tc\t–"]


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"state": "SUCCEEDED", "exit_code": 0, "signal": None}, 0),
        ({"state": "FAILED", "exit_code": 7, "signal": None}, 7),
        ({"state": "FAILED", "exit_code": None, "signal": 9}, 137),
        ({"state": "FAILED", "exit_code": None, "signal": None}, 1),
        ({"state": "REJECTED", "exit_code": None, "signal": None}, 1),
        ({"state": "CANCELLED", "exit_code": 0, "signal": 15}, 143),
    ],
)
def test_the_exit_code_of_a_job(job: dict[str, object], code: int):
    assert exit_code(job) == code


@pytest.mark.parametrize(
    ("status", "code"), [(401, 4), (403, 4), (404, 3), (409, 1), (412, 1), (413, 2), (422, 2), (429, 1), (503, 1)]
)
def test_the_exit_code_of_a_refusal(status: int, code: int, capsys: pytest.CaptureFixture[str]):
    assert refused(ApiError(status, {"detail": 'queue "visoin"', "did_you_mean": "vision"})) == code
    said = capsys.readouterr().err
    assert said.startswith("error: queue \"visoin\" (did you mean 'vision'?)") and said.count("\n") == 1


def test_what_was_probably_meant_is_said_once(capsys: pytest.CaptureFixture[str]):
    assert refused(ApiError(404, {"detail": 'no "x" (did you mean "y"?)', "did_you_mean": "y"})) == 3
    assert capsys.readouterr().err.startswith('error: no "x" (did you mean "y"?)  try: ')


def test_each_wrong_field_is_said(capsys: pytest.CaptureFixture[str]):
    errors = [{"pointer": "/gpus", "message": "at least 1", "value": 0}, {"pointer": "/name", "message": "too long"}]
    assert refused(ApiError(422, {"detail": "2 errors", "errors": errors})) == 2
    assert capsys.readouterr().err.splitlines() == ["error: /gpus: at least 1 (got 0)", "error: /name: too long"]


@pytest.mark.parametrize(("text", "value"), [("30s", 30), ("2m", 120), ("1.5h", 5400), ("7d", 604_800), ("4", 4)])
def test_times(text: str, value: float):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "soon", "-1", "nan", "inf", "1w"])
def test_no_times(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        seconds(text)
    assert ended.value.code == 2 and "is no time" in capsys.readouterr().err


def running(quiet_s: float, per_s: float = 2.0, **more: object) -> dict[str, object]:
    return {"state": "RUNNING", "rate_per_s": per_s, "measured_until_s": time.time() - quiet_s, **more}


def test_a_rate_is_that_of_its_time():
    assert [pace(running(20.0)), pace(running(45.4))] == ["2.0/s", "last mini-batch 45 s ago"]
    assert [pace(running(420.0)), pace(running(7300.0))] == ["last mini-batch 7 min ago", "last mini-batch 2h ago"]
    assert pace(running(420.0, per_s=0.01)) == "0.0/s"  # eight mini-batches take 800 s
    assert [pace(running(420.0, state=state)) for state in ("SUSPENDED", "SUCCEEDED")] == ["2.0/s", "2.0/s"]
    assert pace({"state": "RUNNING", "rate_per_s": None, "measured_until_s": None}) == "–"


def test_what_is_wrong_stands_beside_the_place():
    job = {"state": "RUNNING", "where": "n1:0", "notices": {"JobStalled": "no mini-batch for 70 s"}}
    assert place_or_reason(job) == "n1:0; no mini-batch for 70 s"


def test_a_loss_that_is_no_number_is_said():
    said = [loss({"loss": value, "loss_nonfinite": word}) for value, word in ((0.12345, ""), (None, "nan"), (None, ""))]
    assert said == ["0.1235", "nan", "–"]


def test_numbers_are_short():
    assert [count(None), count(9999), count(41_234)] == ["–", "9999", "41k"]
    assert [rate(None), rate(8.24), rate(310.2)] == ["–", "8.2/s", "310/s"]
    assert [duration(59), duration(61), duration(7300), duration(200_000)] == ["59s", "1m", "2h", "2d"]
    sizes = [bytes_of(17), bytes_of(3 << 10), bytes_of(12 << 20), bytes_of(3 << 29)]
    assert sizes == ["17 B", "3 KiB", "12 MiB", "1.5 GiB"]


@pytest.mark.parametrize(
    ("state", "where", "held", "shown"),
    [
        ("RUNNING", "n1:0", False, "n1:0"),
        ("SUSPENDED", "n1:0", True, "its memory stays"),
        ("SUSPENDED", "", True, "its memory stays"),
        ("SUSPENDED", "", False, "its memory stays"),
        ("STOPPING", "", False, "Code"),
    ],
)
def test_a_job_that_does_not_run_says_why(state: str, where: str, held: bool, shown: str):
    job = {"state": state, "where": where, "held": held, "message": "its memory stays", "reason": "Code"}
    assert place_or_reason(job) == shown


def test_a_spreadsheet_gets_every_column(capsys: pytest.CaptureFixture[str]):
    assert printed(capsys, form=Form.CSV).splitlines()[:2] == ["ID,NAME,RATE,MORE", 'j-1,"a\tb']
    assert printed(capsys, form=Form.CSV, headers=False, limit=1).startswith("j-1,")


def test_stretches_of_time_as_slurm_writes_them():
    assert [clock(s) for s in (None, 0.4, 59.6, 3909, 90_061)] == ["–", "0:00:00", "0:01:00", "1:05:09", "1-01:01:01"]


def test_a_time_is_a_date_or_so_long_ago(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert moment("--since", "2h") == 1_000_000.0 - 7200
    assert moment("--since", "2026-11-20T22:14:03Z") == 1_795_212_843.0
    with pytest.raises(SystemExit):
        moment("--since", "yesterday")
