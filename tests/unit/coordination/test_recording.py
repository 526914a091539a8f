"""Recorded steps are derived again byte for byte."""

from __future__ import annotations

import msgspec
import pytest

from libs.coordination.gangs import Gang, applied, wrote
from libs.coordination.recording import NotARecord, derive, head_line, step_line
from libs.coordination.state import Coordination
from libs.coordination.step import step
from tests.unit.coordination.model import GB, Gpu, Job


class RecordedGpu(Gpu):
    """Keeps the lines that an agent would keep, from `begin` on."""

    lines: list[bytes] = []

    def begin(self) -> None:
        self.lines = [head_line(self.state)]

    def coordinate(self) -> None:
        if self.lines:
            state = msgspec.convert(msgspec.to_builtins(self.state), Coordination)
            self.lines.append(step_line(self.now_s, self.readings(), step(state, self.readings(), self.now_s)))
        super().coordinate()


def recorded() -> list[bytes]:
    bursting = Job("o", guest=False, wanted=lambda number: (10 if number % 60 < 40 else 25) * GB, slowed_by_guests=0.5)
    gpu = RecordedGpu(bursting, Job("g", wanted=lambda number: 30 * GB))
    gpu.run(3.0)
    gpu.begin()
    gpu.run(6.0)
    return gpu.lines


def test_steps_are_derived_again_from_any_file():
    lines = recorded()
    found = list(derive(lines))
    assert len(found) == len(lines) - 1 > 50
    assert all(each.is_same for each in found)
    assert any(b"memory.burst.v1" in each.recorded for each in found)


def test_other_rules_show():
    lines = recorded()
    lines[0] = lines[0].replace(b'"margin_ratio":0.05', b'"margin_ratio":0.2')
    different = [each for each in derive(lines) if not each.is_same]
    assert different and different[0].line > 1


def test_a_line_that_was_cut_off_is_passed_over_and_another_one_is_named():
    lines = recorded()[:5]
    assert len(list(derive([*lines, b"[1.0,"]))) == 4
    with pytest.raises(NotARecord, match=r"line 3: .*expected a line of coordination"):
        list(derive([*lines[:2], b"{}\n"]))
    with pytest.raises(NotARecord, match="line 1: a record of format 9; expected 4"):
        list(derive([b'{"format":9,"state":{}}\n']))


def test_processes_of_a_gang_apply_the_changes_of_all_gpus_under_one_number():
    gang = Gang(gpus=[0, 1])
    wrote(gang, 7, {0: 1})
    wrote(gang, 8, {0: 1, 1: 4})
    assert [applied(gang, 0, 6), applied(gang, 0, 7), applied(gang, 1, 7)] == [0, 1, 0]
    assert [applied(gang, 0, 9), applied(gang, 1, 9)] == [1, 4]
