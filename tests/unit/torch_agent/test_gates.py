"""How a guest's gate divides the time of a GPU, on a clock of the test."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_agent.harness.allowance import Allowance
from torch_agent.harness.control import ControlReader, allow, create_control
from torch_agent.harness.gate import gate as gate_module
from torch_agent.harness.gate import signals as signals_module
from torch_agent.harness.gate.device_time import DeviceTime
from torch_agent.harness.gate.gate import Gate, is_free
from torch_agent.harness.gate.pace import CREDIT_S, Pace
from torch_agent.harness.gate.signals import PATIENCE, Signals
from torch_agent.harness.gate.spacing import Spacing
from torch_agent.harness.gate.waits import Waits
from torch_agent.harness.gpu_page import FAR_S, IDLE_S, SHORTEST_GAP_S, WAITING_FROM, GpuPage, create
from torch_agent.harness.versions import UnknownVersion, Unreadable

GUARD_S = 0.001
NO_CUDA = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))


@pytest.fixture
def page(tmp_path: Path) -> GpuPage:
    create(tmp_path / "0.page")
    return GpuPage(tmp_path / "0.page")


class Clock:
    """What `time.monotonic` says."""

    def __init__(self, now_s: float) -> None:
        self.now_s, self.computed_s = now_s, 0.0

    def monotonic(self) -> float:
        return self.now_s

    def process_time(self) -> float:
        return self.computed_s

    def compute(self, seconds: float) -> None:
        """On a CPU of its own."""
        self.now_s += seconds
        self.computed_s += seconds

    def sleep(self, bell: int, now_s: float, longest_s: float) -> bool:
        """In the place of a page's."""
        self.now_s = now_s + longest_s
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock(1000.0)
    monkeypatch.setattr(signals_module, "monotonic", found.monotonic)
    monkeypatch.setattr(signals_module, "thread_time", found.process_time)
    return found


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.75])
def test_a_share_is_met_although_every_sleep_is_too_long(share: float):
    pace, now_s, computed_s = Pace(), 0.0, 0.0
    pace.starts(now_s)
    for _ in range(5000):
        now_s, computed_s = now_s + 0.002, computed_s + 0.002
        pace.computed(now_s, share)
        while idle_s := pace.idle_s(share):
            now_s += idle_s * 1.3 + 0.0005
            pace.idled(now_s, share)
    assert computed_s / now_s == pytest.approx(share, abs=0.005)


def test_time_that_the_processor_did_not_have_is_not_owed():
    pace = Pace()
    pace.starts(0.0)
    pace.computed(1.0, 0.5)
    pace.check(processor_s=0.5)
    assert pace.idle_s(0.5) == 0.0, "it had its half"


def test_a_guest_that_has_waited_long_is_not_ahead_by_more_than_a_group():
    pace = Pace()
    pace.starts(0.0)
    pace.idled(100.0, 0.5)
    pace.computed(100.0 + 4 * CREDIT_S, 0.5)
    assert pace.idle_s(0.5) == pytest.approx(2 * CREDIT_S)


def test_waits_are_expected_by_their_place_among_the_workers():
    waits = Waits()
    waits.pattern(2)
    assert waits.expected_s() == 0.0, "nothing is known"
    for _ in range(8):
        waits.took(0.040)
        waits.took(0.001)
    assert waits.expected_s() == 0.040
    waits.took(0.040)
    assert waits.expected_s() == 0.001
    waits.pattern(3)
    assert waits.expected_s() == 0.0, "another loader"


def test_the_longest_groups_are_known():
    spacing = Spacing()
    assert spacing.p99_s() == 0.0
    for _ in range(980):
        spacing.took(0.0003)
    for _ in range(20):
        spacing.took(0.00425)
    assert spacing.p99_s() == pytest.approx(0.0043)


def test_a_guest_computes_while_its_owner_waits_and_not_shortly_before_that_ends(page: GpuPage):
    assert is_free([page], 0.0, 10.0, GUARD_S), "there is no owner"
    page.own(os.getpid())
    page.busy(until_s=10.05)
    assert not is_free([page], 0.0, 10.0, GUARD_S)
    page.wait_for_data(10.0, until_s=10.02)
    assert is_free([page], 0.0, 10.01, GUARD_S)
    assert not is_free([page], 0.0, 10.0195, GUARD_S)
    page.busy(until_s=10.05)
    assert not is_free([page], 0.0, 10.021, GUARD_S)


def test_an_owner_that_is_silent_counts_as_waiting_also_one_of_another_life_of_the_machine(page: GpuPage):
    page.own(os.getpid())
    page.busy(until_s=10.0)
    assert page.gap_s(9.9) == 0.0
    assert page.gap_s(10.1) == float("inf")
    page.busy(until_s=10.0 + 2 * FAR_S)
    assert page.gap_s(10.0) == float("inf")


def test_a_share_beside_no_owner_is_kept_to_and_one_with_several_gpus_waits_for_all(page: GpuPage, tmp_path: Path):
    assert not is_free([page], 0.5, 10.0, GUARD_S)
    create(tmp_path / "1.page")
    other = GpuPage(tmp_path / "1.page")
    other.own(os.getpid())
    other.busy(until_s=10.05)
    assert not is_free([page, other], 0.0, 10.0, GUARD_S)


def test_a_gate_without_an_owner_sleeps_as_long_as_it_has_to_idle(page: GpuPage):
    began_s = time.monotonic()
    assert not page.sleep(page.listen(began_s), began_s, 0.05)
    assert time.monotonic() - began_s >= 0.05, "it would look around, and compute by that"
    page.own(os.getpid())
    page.busy(until_s=began_s)
    assert not page.sleep(page.listen(began_s), began_s, 600.0), "it is over when the owner has been silent"


def test_no_guest_is_woken_for_a_gap_in_which_none_begins_anything(page: GpuPage):
    def is_woken(gap_s: float) -> bool:
        now_s = time.monotonic()
        bell = page.listen(now_s)
        page.wait_for_data(now_s, now_s + gap_s)
        return page.sleep(bell, now_s, 0.0)

    page.own(os.getpid())
    assert not is_woken(SHORTEST_GAP_S / 2)
    assert is_woken(2 * SHORTEST_GAP_S)


def test_a_guest_that_its_owner_wakes_leaves_the_processor_to_it_first(
    page: GpuPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, left = Clock(1000.0), list[float]()
    monkeypatch.setattr(gate_module, "time", clock)
    monkeypatch.setattr(clock, "sleep", lambda seconds: left.append(seconds))
    page.own(os.getpid())
    page.busy(until_s=1010.0)
    create_control(tmp_path)
    allow(tmp_path, Allowance(role="guest", share_ratio=0.0))
    sleep = page.sleep

    def owner_waits(bell: int, now_s: float, longest_s: float) -> bool:
        page.wait_for_data(now_s, now_s + 1.0)
        return sleep(bell, now_s, longest_s)

    monkeypatch.setattr(page, "sleep", owner_waits)
    Gate(ControlReader(str(tmp_path)), [page], None)()
    assert left == [gate_module.AFTER_OWNER_S]


def test_what_a_guest_computed_with_all_of_the_time_is_not_owed_when_it_has_a_share(
    page: GpuPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = Clock(1000.0)
    monkeypatch.setattr(gate_module, "time", clock)
    monkeypatch.setattr(page, "sleep", clock.sleep)
    create_control(tmp_path)
    gate = Gate(ControlReader(str(tmp_path)), [page], None)
    for share, seconds in ((0.5, 1.0), (1.0, 100.0), (0.5, 1.0)):
        allow(tmp_path, Allowance(role="guest", share_ratio=share))
        ends_s = clock.now_s + seconds
        while clock.now_s < ends_s:
            clock.compute(0.002)
            gate()
    assert clock.now_s == pytest.approx(1102.0, abs=0.1)
    assert gate.closed_s == pytest.approx(1.0, abs=0.1), "half of the two seconds with a share"


def test_an_owner_counts_mini_batches_during_which_no_guest_was_let_in(page: GpuPage, clock: Clock):
    signals = Signals([page], DeviceTime(NO_CUDA))

    def counted(took_s: float = 0.02) -> int:
        before = signals.closed_minibatches
        clock.now_s += took_s
        signals.boundary(took_s)
        return signals.closed_minibatches - before

    assert counted() == 1
    page.allow(1)
    assert counted() == 0, "it is let in"
    page.allow(0)
    assert counted() == 0, "it was, at first"
    assert counted() == 1
    page.allow(1)
    page.allow(0)
    assert counted() == 0, "it was, in between"
    assert counted() == 1


def test_an_owner_is_given_two_of_its_mini_batches_before_it_counts_as_silent(page: GpuPage, clock: Clock):
    signals = Signals([page], DeviceTime(NO_CUDA))
    for took_s in (0.0, 0.2, 0.2):
        signals.boundary(took_s)
    assert page.gap_s(clock.now_s + PATIENCE * 0.2 - 0.001) == 0.0
    assert page.gap_s(clock.now_s + PATIENCE * 0.2 + 0.001) == float("inf")
    clock.now_s += PATIENCE * 0.2
    signals.goes_on()
    assert page.gap_s(clock.now_s + IDLE_S) == 0.0, "it computes gradients"
    signals.ends()
    assert page.owner_pid == 0


def test_an_owner_says_for_how_long_it_will_wait(page: GpuPage, clock: Clock):
    signals = Signals([page], DeviceTime(NO_CUDA))
    signals.boundary(0.0)
    for _ in range(8):
        signals.waits(0)
        clock.now_s += 0.03
        signals.computes()
        assert page.gap_s(clock.now_s) == 0.0
    signals.waits(0)
    assert page.gap_s(clock.now_s) == pytest.approx(0.03)


def test_an_owner_on_a_virtual_gpu_leaves_it_alone_while_it_does_not_make_its_batch_itself(page: GpuPage, clock: Clock):
    signals = Signals([page], None)
    signals.boundary(0.0)
    for _ in range(100):
        signals.waits(0)
        clock.compute(0.1)
        clock.now_s += 0.03
        signals.computes()
    signals.waits(0)
    assert page.gap_s(clock.now_s) == pytest.approx(0.03)
    assert page.gap_s(clock.now_s + 0.03) == 0.0
    assert page.gap_s(clock.now_s + 0.13 + IDLE_S) == 0.0, "it makes its batch, as it always does"
    assert page.gap_s(clock.now_s + 0.03 + PATIENCE * 0.1 + IDLE_S + 0.001) == float("inf")


def test_a_loader_that_fails_does_not_end_the_measuring_of_what_batches_cost(page: GpuPage, clock: Clock):
    signals = Signals([page], None)
    signals.boundary(0.0)
    signals.waits(0)  # and no batch comes
    for _ in range(100):
        signals.waits(0)
        clock.compute(0.1)
        signals.computes()
    signals.waits(0)
    assert page.gap_s(clock.now_s) == pytest.approx(0.0, abs=1e-6)


class Gpu:
    """It does what is launched one after the other, on the clock of the test; a stand-in for `torch.cuda`."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.free_s, self.fails = clock, 0.0, False

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return False

    def launch(self, seconds: float) -> None:
        self.free_s = max(self.clock.now_s, self.free_s) + seconds

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802
        event = SimpleNamespace(at_s=0.0)

        def record() -> None:
            if self.fails:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            event.at_s = max(self.clock.now_s, self.free_s)

        event.record = record
        event.query = lambda: self.clock.now_s >= event.at_s
        event.elapsed_time = lambda end: 1000.0 * (end.at_s - event.at_s)
        return event


def trained(gpu: Gpu, signals: Signals, minibatches: int, wait_s: float) -> None:
    """An owner that launches 20 ms of work in 1 ms, and waits so long for each batch."""
    for _ in range(minibatches):
        signals.waits(0)
        gpu.clock.now_s += wait_s
        signals.computes()
        gpu.launch(0.02)
        gpu.clock.now_s += 0.001
        signals.boundary(wait_s + 0.001)
    signals.waits(0)


def test_a_gpu_is_left_alone_when_it_has_done_what_was_launched(page: GpuPage, clock: Clock):
    gpu = Gpu(clock)
    signals = Signals([page], DeviceTime(SimpleNamespace(cuda=gpu)))
    trained(gpu, signals, 10, wait_s=0.05)
    asked_s = clock.now_s
    assert page.gap_s(asked_s) == 0.0, "the process waits, and the GPU computes"
    assert page.gap_s(asked_s + 0.018) == 0.0
    assert page.gap_s(asked_s + 0.0191) == pytest.approx(0.05 - 0.0191)


def test_a_gpu_that_is_behind_its_process_is_never_left_alone(page: GpuPage, clock: Clock):
    gpu = Gpu(clock)
    signals = Signals([page], DeviceTime(SimpleNamespace(cuda=gpu)))
    trained(gpu, signals, 10, wait_s=0.01)
    for later_s in (0.0, 0.005, 0.0099):
        assert page.gap_s(clock.now_s + later_s) == 0.0


def test_a_guest_sleeps_until_the_gpu_has_done_what_its_owner_launched(page: GpuPage, clock: Clock):
    page.own(os.getpid())
    now_s = time.monotonic()
    page.wait_for_data(now_s, now_s + 30.0, from_s=now_s + 0.02)
    page.sleep(page.listen(now_s), now_s, longest_s=20.0)
    assert 0.02 <= time.monotonic() - now_s < 20.0 and page.gap_s(time.monotonic()) > 0.0


def test_a_pause_of_the_process_is_no_time_of_its_gpu(page: GpuPage, clock: Clock):
    gpu = Gpu(clock)
    signals = Signals([page], DeviceTime(SimpleNamespace(cuda=gpu)))
    trained(gpu, signals, 10, wait_s=0.05)
    clock.now_s += 0.05
    signals.computes()
    clock.now_s += 60.0
    signals.move([page])  # as after it has stood still
    trained(gpu, signals, 2, wait_s=0.05)
    assert page.gap_s(clock.now_s + 0.03) > 0.0


def test_one_long_mini_batch_takes_few_gaps_away(page: GpuPage, clock: Clock):
    gpu = Gpu(clock)
    signals = Signals([page], DeviceTime(SimpleNamespace(cuda=gpu)))
    trained(gpu, signals, 10, wait_s=0.05)
    gpu.launch(60.0)
    clock.now_s += 60.0
    trained(gpu, signals, 15, wait_s=0.05)
    assert page.gap_s(clock.now_s + 0.04) > 0.0


def test_the_beginning_of_another_owners_gap_closes_no_gate(page: GpuPage):
    page.own(os.getpid())
    page.wait_for_data(10.0, until_s=10.02, from_s=500.0)
    assert page.gap_s(10.01) > 0.0
    page.clear()
    assert page._times[WAITING_FROM] == 0.0


def test_an_owner_whose_cuda_fails_hears_of_it_from_its_own_operations(page: GpuPage, clock: Clock):
    gpu = Gpu(clock)
    signals = Signals([page], DeviceTime(SimpleNamespace(cuda=gpu)))
    trained(gpu, signals, 10, wait_s=0.05)
    gpu.fails = True
    trained(gpu, signals, 10, wait_s=0.05)
    assert page.gap_s(clock.now_s + 0.03) > 0.0


def test_a_child_of_the_owner_does_not_take_its_signals_away(page: GpuPage):
    signals = Signals([page], DeviceTime(NO_CUDA))
    signals.boundary(0.0)
    child = os.fork()
    if child == 0:
        signals.forked()
        signals.ends()
        os._exit(0)
    os.waitpid(child, 0)
    assert page.owner_pid == os.getpid()


def test_what_is_no_page_is_refused_and_a_newer_one_stays(tmp_path: Path):
    path = tmp_path / "0.page"
    path.write_bytes(b"x")
    with pytest.raises(Unreadable, match="1 bytes; expected a page of a GPU"):
        GpuPage(path)
    create(path)
    GpuPage(path)
    newer = bytearray(path.read_bytes())
    newer[4] += 1
    path.write_bytes(newer)
    with pytest.raises(UnknownVersion):
        create(path)
    assert path.read_bytes() == newer
