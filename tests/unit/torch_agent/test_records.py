"""Records in a task's folder lie in reach of the task: what is none is said to be none, whatever it is."""

import json
from pathlib import Path

import pytest
from torch_agent.harness.versions import Unreadable
from torch_agent.records import LONGEST_BYTES, Exit, Shim, read_record

EXITED = {"version": 2, "exit_code": 1, "signal": None, "outcome": "exited", "rank": 0, "stderr_tail": "end"}


def test_a_record_is_read(tmp_path: Path):
    path = tmp_path / "exit.json"
    path.write_text(json.dumps(EXITED))
    assert read_record(path, Exit) == Exit(
        version=2, exit_code=1, signal=None, outcome="exited", rank=0, stderr_tail="end"
    )


def test_a_record_that_is_not_there_is_none(tmp_path: Path):
    assert read_record(tmp_path / "exit.json", Exit) is None


@pytest.mark.parametrize("kind", [Exit, Shim])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b'{"version": 99}', id="newer"),
        pytest.param(b" " * (LONGEST_BYTES + 1), id="too long"),
        pytest.param(b'{"of the task": ' + b"[" * 100_000, id="nested deeper than a decoder goes"),
    ],
)
def test_what_is_no_record_is_said_to_be_none(content: bytes, kind: type[Exit] | type[Shim], tmp_path: Path):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r"record\.json"):
        read_record(path, kind)


@pytest.mark.parametrize("field", ["exit_code", "signal", "rank"])
def test_a_number_that_readers_of_the_log_cannot_hold_is_no_record(field: str, tmp_path: Path):
    path = tmp_path / "exit.json"
    path.write_text(json.dumps({**EXITED, field: 10**30}))
    with pytest.raises(Unreadable, match=r"exit\.json"):
        read_record(path, Exit)
