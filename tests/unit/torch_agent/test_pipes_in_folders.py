"""A pipe where a file is expected would stop the agent, or a process that it watches: nothing waits for one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from torch_agent.harness.allowance import Allowance
from torch_agent.harness.control import NAME, allow, ask_to_save, current_allowance, current_turn, turn_to
from torch_agent.harness.regular import regular
from torch_agent.harness.versions import Unreadable
from torch_agent.output import read_lines
from torch_agent.pages import Living, living, pages, read_page
from torch_agent.records import Record, read_record
from torch_agent.reports import last_report

WAITS_S = 60.0


def ends(act: Callable[[], object]) -> object:
    """What it returns or raises; on a thread, so that one that waits for ever fails and does not hang."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(act())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAITS_S)
    assert found, "it waits for a writer of the pipe"
    return found[0]


def test_pages_output_and_reports_that_are_pipes_say_nothing(tmp_path: Path):
    page, output, reports = tmp_path / "rank-0-2.page", tmp_path / "rank-0.out", tmp_path / "reports"
    for path in (page, output, reports):
        os.mkfifo(path)
    assert ends(lambda: read_page(page)) is None
    assert ends(lambda: pages(tmp_path)) == []
    assert ends(lambda: living(tmp_path)) == Living([], unread=False)
    assert ends(lambda: read_lines(output, 3, ended=False, now_s=0.0)) == ([], 3)
    assert ends(lambda: last_report(reports, 3)) == (None, 3)


def test_a_record_that_is_a_pipe_is_unreadable(tmp_path: Path):
    path = tmp_path / "exit.json"
    os.mkfifo(path)
    assert isinstance(ends(lambda: read_record(path, Record)), Unreadable)


@pytest.mark.parametrize(
    "act",
    [
        current_turn,
        current_allowance,
        ask_to_save,
        lambda folder: turn_to(folder, suspend=True),
        lambda folder: allow(folder, Allowance(share_ratio=0.5)),
    ],
)
def test_a_control_file_that_is_a_pipe_is_refused(tmp_path: Path, act: Callable[[Path], object]):
    os.mkfifo(tmp_path / NAME)
    assert isinstance(ends(lambda: act(tmp_path)), OSError)


def test_what_is_opened_is_a_file_and_nothing_else(tmp_path: Path):
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY):
        assert isinstance(ends(partial(regular, str(pipe), flags)), OSError)
    with open(file, "w", opener=regular) as written:
        written.write("said")
    assert file.read_text() == "said"
