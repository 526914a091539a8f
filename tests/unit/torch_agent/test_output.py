"""What a task has written: read in parts, and no more of it than can be passed on, whatever its files claim to be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_agent.folders import TaskFolder
from torch_agent.journal import Journal
from torch_agent.output import EVENT_BYTES, LEFT_BYTES, logged
from torch_agent.written import Written

from libs.contracts.agent import LogLine
from libs.node.task import Status, Task
from tests.unit.node.test_task import LAUNCH
from torch_agent import output


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal(tmp_path / "journal.db")
    yield found
    found.close()


def ended_with(folder: Path, journal: Journal) -> tuple[list[str], dict[str, int]]:
    """Lines of the task in this folder, and how far its files are read, when it has ended."""
    task = Task(order=LAUNCH, gpu_indices=[0], status=Status.EXITED)
    lines, tails = Written(journal).output(task, TaskFolder(folder))
    return [line.text for line in lines], tails


def test_of_a_file_that_claims_to_have_a_terabyte_the_end_is_read(tmp_path: Path, journal: Journal):
    path = tmp_path / "rank-0.out"
    path.write_text("begun\n")
    os.truncate(path, 1 << 40)
    with path.open("a") as file:
        file.write("\nthe last line\n")
    texts, tails = ended_with(tmp_path, journal)
    assert texts[0].startswith(f"… ({path.stat().st_size - LEFT_BYTES} bytes of output are left out here")
    assert texts[-1] == "the last line"
    assert tails == {str(path): path.stat().st_size}


def test_nothing_is_left_out_of_an_ordinary_rest(tmp_path: Path, journal: Journal):
    path = tmp_path / "rank-0.err"
    path.write_text("a line\n" * 100_000)
    texts, _ = ended_with(tmp_path, journal)
    assert texts == ["a line"] * 100_000


def test_what_is_left_out_ends_with_a_line(tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output, "LEFT_BYTES", 25)
    (tmp_path / "rank-0.out").write_text("".join(f"line {number}\n" for number in range(9)))
    texts, _ = ended_with(tmp_path, journal)
    assert texts[0].startswith("… (42 bytes of output are left out here")
    assert texts[1:] == ["line 6", "line 7", "line 8"]


def test_a_link_to_a_file_with_a_hole_is_read_as_little_of(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output, "LEFT_BYTES", 1 << 20)
    with (tmp_path / "far").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "rank-0.out").symlink_to(tmp_path / "far")
    texts, _ = ended_with(tmp_path, journal)
    assert "bytes of output are left out here" in texts[0] and len(texts) == 1 + (1 << 20) // output.CHUNK_BYTES


def test_a_link_to_an_endless_file_says_nothing(tmp_path: Path, journal: Journal):
    (tmp_path / "rank-0.out").symlink_to("/dev/zero")
    assert ended_with(tmp_path, journal) == ([], {})


def test_lines_are_carried_by_events_that_no_log_refuses():
    lines = [LogLine(time_s=0.0, stream="stdout", rank=0, text=str(number) * 1000) for number in range(1000)]
    events = logged(LAUNCH, lines)
    assert [line for event in events for line in event.lines] == lines
    assert len(events) > 1
    assert all(sum(len(line.text) for line in event.lines) <= EVENT_BYTES for event in events)
    assert logged(LAUNCH, []) == []


def test_a_file_with_a_rank_that_no_log_could_carry_is_no_output(tmp_path: Path):
    for name in ("rank-7.out", f"rank-{1 << 70}.out"):
        (tmp_path / name).write_text("a line\n")
    assert [path.name for path in TaskFolder(tmp_path).outputs()] == ["rank-7.out"]


def test_so_many_lines_end_where_as_many_were_read(tmp_path: Path):
    path = tmp_path / "rank-0.out"
    path.write_text("".join(f"line {number}\n" for number in range(20_000)) + "\n" + "x" * 200_000 + "\nend")
    offset, read = 0, 0
    while True:
        lines, new_offset = output.read_lines(path, offset, ended=False, now_s=0.0)
        if new_offset == offset:
            break
        offset, read = new_offset, read + len(lines)
        assert output.behind_lines(path, read) == offset
    assert path.read_bytes()[output.behind_lines(path, 7) :].startswith(b"line 7\n")
    assert output.behind_lines(path, 0) == 0 == output.behind_lines(tmp_path / "none", 3)
    assert output.behind_lines(path, 10**9) == path.stat().st_size
