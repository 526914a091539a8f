"""Pages and control files of older, today's and newer versions, and such as nothing has written."""

from __future__ import annotations

import logging
import struct
from dataclasses import asdict, astuple
from pathlib import Path

import pytest
from torch_agent.acknowledgements import with_acknowledgements
from torch_agent.harness import control, page
from torch_agent.harness.allowance import GUEST, PLACES, Allowance
from torch_agent.harness.control import (
    ControlReader,
    allow,
    ask_to_save,
    create_control,
    current_allowance,
    current_turn,
    turn_to,
)
from torch_agent.harness.page import Acknowledged, Gate, Handover, Memory, PageWriter
from torch_agent.harness.versions import UnknownVersion, Unreadable
from torch_agent.layouts import LAYOUTS
from torch_agent.pages import Living, living, pages, read_page

from libs.node.seen import Seen

MB = 1_000_000
ACKNOWLEDGED = Acknowledged(turn=3, bytes_parked=5, bytes_left=7, park_s=0.25, unpark_s=0.5, parked_at_s=1.5)
HANDOVER = Handover(
    movable=True,
    ready=False,
    restored=True,
    saved=11,
    save_failed=False,
    save_fd=13,
    save_bytes=17,
    save_s=2.5,
    load_s=3.5,
    resizable=True,
)

MEMORY = Memory(applied=47, device_bytes=53, cached_bytes=59, host_bytes=61, minibatch_host_bytes=67, demand_bytes=71)
GATE = Gate(gates=73, spacing_p99_s=4.5, closed_s=5.5, last_minibatch_s=6.5, closed_minibatches=79)


def written(folder: Path) -> Path:
    writer = PageWriter(str(folder), rank=2, world_size=4)
    writer.write(19, 23.0, 0.125, 0.75, 29, 31)
    writer.acknowledged(ACKNOWLEDGED)
    writer.handover(HANDOVER)
    writer.met(6)
    writer.rhythm(1.25, 37)
    writer.sign(43)
    writer.memory(MEMORY)
    writer.gate(*astuple(GATE))
    [path] = folder.glob("*.page")
    return path


def changed(path: Path, at: int, layout: str, value: float) -> None:
    content = bytearray(path.read_bytes())
    struct.pack_into(layout, content, at, value)
    path.write_bytes(content)


def test_what_the_harness_of_today_writes_is_read_as_it_was_written(tmp_path: Path):
    reading = read_page(written(tmp_path))
    assert reading is not None
    found = asdict(reading)
    assert found.pop("pid") > 0
    assert found == {
        "rank": 2,
        "world_size": 4,
        "minibatches_total": 19,
        "last_boundary_s": 23.0,
        "minibatch_mean_s": 0.125,
        "loss": 0.75,
        "memory_peak_bytes": 29,
        "memory_min_bytes": 31,
        "acknowledged": asdict(ACKNOWLEDGED),
        "handover": asdict(HANDOVER),
        "listens": True,
        "group_size": 6,
        "p99_s": 1.25,
        "nonfinite": 37,
        "signs": 43,
        "memory": asdict(MEMORY),
        "gate": asdict(GATE),
    }
    assert max(LAYOUTS) == page.VERSION


def test_a_page_of_a_newer_version_is_named_once_and_its_task_has_no_facts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = written(tmp_path)
    PageWriter(str(tmp_path), rank=3, world_size=4).write(19, 23.0, 0.125, 0.75, 29, 31)
    changed(path, 4, "<I", 99)
    with pytest.raises(
        UnknownVersion, match=r"\.page: a page of version 99; this code knows version 1, 2, 3, 4, 5, 6, 7$"
    ):
        read_page(path)
    with caplog.at_level(logging.WARNING):
        assert pages(tmp_path) == pages(tmp_path) == []
    [said] = caplog.messages
    assert said.startswith(f"{path}: a page of version 99;") and "the task goes on" in said


@pytest.mark.parametrize(
    ("at", "layout", "value"), [(32, "<Q", 2**63), (48, "<d", float("nan")), (512 + 24, "<d", float("inf"))]
)
def test_a_page_with_an_impossible_value_is_not_read(tmp_path: Path, at: int, layout: str, value: float):
    path = written(tmp_path)
    changed(path, at, layout, value)
    assert read_page(path) is None


@pytest.mark.parametrize("what", ["whole", "torn", "torn, of a process that has ended", "not begun", "of newer code"])
def test_a_page_in_which_a_process_is_interrupted_counts_as_unread_while_that_lives(what: str, tmp_path: Path):
    path = written(tmp_path)
    if what.startswith("torn"):
        changed(path, page.SEQUENCE_AT, "<Q", 7)
    if what.endswith("has ended"):
        changed(path, page.BODY_AT, "<I", 2**22 + 1)  # beyond what the kernel gives out
    if what == "not begun":
        changed(path, page.SEQUENCE_AT, "<Q", 0)
    if what == "of newer code":
        changed(path, 4, "<I", page.VERSION + 1)
    found = living(tmp_path)
    assert (len(found.pages), found.unread) == (what == "whole", what == "torn")


def test_beside_a_page_of_newer_code_none_is_waited_for(tmp_path: Path):
    path = written(tmp_path)
    newer = tmp_path / "newer.page"
    newer.write_bytes(path.read_bytes())
    changed(newer, 4, "<I", page.VERSION + 1)
    assert living(tmp_path) == Living([], unread=False)


def test_a_process_that_is_interrupted_in_its_page_has_not_done_yet_what_it_was_asked(tmp_path: Path):
    path = written(tmp_path)
    changed(path, page.SEQUENCE_AT, "<Q", 7)
    seen = with_acknowledgements(Seen(), tmp_path, living(tmp_path))
    assert (seen.harnessed, seen.acknowledged) == (True, False), "without the harness it would be frozen where it is"


def test_what_is_no_page_is_not_read(tmp_path: Path):
    (tmp_path / "short.page").write_bytes(b"SJHP")
    (tmp_path / "folder.page").mkdir()
    (tmp_path / "other.page").write_bytes(bytes([7]) * page.SIZE)
    assert pages(tmp_path) == []


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_a_harness_of_each_version_hears_turns_and_requests(tmp_path: Path, version: int):
    create_control(tmp_path)
    path = tmp_path / control.NAME
    if version < control.VERSION:
        content = bytearray(control.LAYOUTS[version].size)
        if version > 2:
            control.MARK.pack_into(content, control.MARK_AT, control.MAGIC, version)
        path.write_bytes(content)
    size = path.stat().st_size
    reader = ControlReader(str(tmp_path))
    turn_to(tmp_path, suspend=True)
    turn_to(tmp_path, suspend=True)
    assert (reader.turn, reader.saves, current_turn(tmp_path)) == (1, 0, 1)
    assert ask_to_save(tmp_path) == 1 and reader.saves == 1
    turn_to(tmp_path, suspend=False)
    assert (reader.turn, reader.saves) == (2, 1)
    assert path.stat().st_size == size == control.LAYOUTS[version].size


def test_a_harness_of_version_1_hears_turns_and_saves_nothing(tmp_path: Path):
    path = tmp_path / control.NAME
    path.write_bytes(bytes(8))
    reader = ControlReader(str(tmp_path))
    turn_to(tmp_path, suspend=True)
    assert (reader.turn, reader.saves, current_turn(tmp_path)) == (1, 0, 1)
    with pytest.raises(Unreadable, match="version 1, with processes that save no state; expected 2 or later"):
        ask_to_save(tmp_path)
    assert path.stat().st_size == 8


def test_a_control_file_of_a_newer_version_stays_as_it_is(tmp_path: Path):
    create_control(tmp_path)
    path = tmp_path / control.NAME
    changed(path, control.MARK_AT + 4, "<I", 99)
    before = path.read_bytes()
    for use in (
        lambda: turn_to(tmp_path, suspend=True),
        lambda: ask_to_save(tmp_path),
        lambda: ControlReader(str(tmp_path)),
    ):
        with pytest.raises(UnknownVersion, match="control: a control file of version 99; this code knows version 1, 2"):
            use()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"x", bytes(24), bytes(100)])
def test_what_is_no_control_file_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / control.NAME
    path.write_bytes(content)
    with pytest.raises(Unreadable, match="no control file"):
        turn_to(tmp_path, suspend=True)
    assert path.read_bytes() == content


def test_a_process_without_a_control_file_is_told_nothing(tmp_path: Path):
    reader = ControlReader(str(tmp_path))
    assert (reader.turn, reader.saves) == (0, 0)
    assert (reader.change, reader.allowance) == (0, Allowance())


def test_what_a_task_may_have_is_read_as_it_was_written_and_each_change_has_a_number(tmp_path: Path):
    create_control(tmp_path)
    reader = ControlReader(str(tmp_path))
    assert (reader.change, reader.allowance) == current_allowance(tmp_path) == (0, Allowance())
    guest = Allowance(role=GUEST, memory_limits=(2**40, None, 2**30), share_ratio=0.25)
    assert allow(tmp_path, guest) == allow(tmp_path, guest) == 1
    assert (reader.change, reader.allowance) == current_allowance(tmp_path) == (1, guest)
    assert (reader.turn, reader.saves) == (0, 0)
    assert allow(tmp_path, Allowance()) == 2
    assert (reader.change, reader.allowance) == (2, Allowance())


def test_each_process_of_a_gang_reads_the_limit_of_its_gpu(tmp_path: Path):
    create_control(tmp_path)
    readers = [ControlReader(str(tmp_path), place) for place in (0, 1, 2, 3, 99, None)]
    assert {reader.limit_bytes for reader in readers} == {None}
    allow(tmp_path, Allowance(memory_limits=(7 * MB, None, 5 * MB)))
    assert [reader.limit_bytes for reader in readers] == [7 * MB, None, *[5 * MB] * 4]
    many = tuple(number * MB for number in range(PLACES + 1, 0, -1))
    assert allow(tmp_path, Allowance(memory_limits=many)) == 2
    further = ControlReader(str(tmp_path), PLACES)
    assert [readers[3].limit_bytes, further.limit_bytes] == [many[3], MB], "there is no place for more"
    assert allow(tmp_path, Allowance(memory_limits=(None, None))) == 3
    assert allow(tmp_path, Allowance()) == 3, "the same in other words"
    assert {reader.limit_bytes for reader in readers} == {None}


def test_processes_of_a_version_without_limits_per_gpu_keep_to_the_smallest(tmp_path: Path):
    path = tmp_path / control.NAME
    content = bytearray(control.LAYOUTS[4].size)
    control.MARK.pack_into(content, control.MARK_AT, control.MAGIC, 4)
    path.write_bytes(content)
    what = Allowance(role=GUEST, memory_limits=(7 * MB, None, 5 * MB), share_ratio=0.25)
    assert allow(tmp_path, what) == allow(tmp_path, what) == 1
    reader = ControlReader(str(tmp_path), 0)
    assert reader.limit_bytes == 5 * MB
    assert reader.allowance == Allowance(role=GUEST, memory_limits=(5 * MB,), share_ratio=0.25)
    assert path.stat().st_size == control.LAYOUTS[4].size


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_harness_of_a_version_without_limits_is_allowed_all_and_told_none(tmp_path: Path, version: int):
    path = tmp_path / control.NAME
    content = bytearray(control.LAYOUTS[version].size)
    if version > 2:
        control.MARK.pack_into(content, control.MARK_AT, control.MAGIC, version)
    path.write_bytes(content)
    reader = ControlReader(str(tmp_path))
    assert (reader.change, reader.allowance) == (0, Allowance())
    with pytest.raises(Unreadable, match="processes that know no limits; expected version 4 or later"):
        allow(tmp_path, Allowance(role=GUEST))
    assert path.read_bytes() == content
