"""A script in the care of a Job is moved, stopped and killed: its losses stay the same to the bit."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_agent.harness.control import ask_to_save, current_turn
from torch_agent.pages import pages

from libs.bus.local_broker.network import free_port
from tests.integration.job_process import PATIENCE_S, JobProcess, start_by_hand

Start = Callable[..., JobProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts attempts at one job, and ends them all in the end."""
    started: list[JobProcess] = []

    def start_one(name: str, **how: Any) -> JobProcess:
        started.append(JobProcess(tmp_path, name, **how))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the script leaves when it is run by hand, without an agent."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with start_by_hand(folder) as process:
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    assert len(lines(folder)) == 30 + 3
    return lines(folder)


def lines(folder: Path, rank: int = 0) -> list[str]:
    return (folder / f"losses.{rank}").read_text().splitlines()


def position(state: bytes) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(state), weights_only=False)["position"]
    return found


def test_it_is_moved_in_the_middle_of_an_epoch_and_at_its_end(start: Start, undisturbed: list[str], tmp_path: Path):
    source = start("1", STOP_AFTER="4")
    others = [start("2", takes_over=True, STOP_AFTER="10"), start("3", takes_over=True, STOP_AFTER="17")]
    last = start("4", takes_over=True)
    for boundary, destination in zip((4, 10, 17), [*others, last], strict=True):
        source.stands_still_after(boundary)
        assert source.handovers[0].movable
        source.hand_over(destination)
        assert not list(destination.states.iterdir())
        source = destination
    assert last.ended() == [0]
    assert lines(tmp_path) == undisturbed


def test_a_move_that_is_given_up_leaves_no_trace(start: Start, undisturbed: list[str], tmp_path: Path):
    process = start("1", STOP_AFTER="4,8")
    process.stands_still_after(4)
    [first] = process.save()
    process.signal(signal.SIGSTOP)
    [state] = process.saved()
    process.signal(signal.SIGCONT)
    assert len(state) == first.save_bytes and first.save_s > 0 and not first.save_failed
    assert position(state)["batches_done"] == 4
    [again] = process.save()
    assert again.saved == 2 and process.saved() == [state]
    process.resume()
    assert memory_files(process) == []
    assert process.handovers[0].save_fd == -1
    process.stops_after(8)
    ask_to_save(process.pages)  # lapses: it does not stand still
    process.goes_on_after(8)
    assert process.ended() == [0]
    assert process.handovers[0].saved == 2
    assert lines(tmp_path) == undisturbed


def memory_files(process: JobProcess) -> list[str]:
    """States that it keeps open."""
    [page] = pages(process.pages)
    found = []
    for path in Path(f"/proc/{page.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has closed another file meanwhile
            found.append(os.readlink(path))
    return [target for target in found if "sanjaya-state" in target]


def test_gradients_that_are_being_accumulated_are_not_left_behind(start: Start, tmp_path: Path):
    source = start("1", ACCUMULATE="4", STOP_AFTER="5")
    destination = start("2", ACCUMULATE="4", takes_over=True)
    source.stands_still_after(5)
    source.save()
    [state] = source.saved()
    assert position(state)["batches_done"] == 8
    source.resume()
    assert source.ended() == [0]
    whole = lines(tmp_path)
    (tmp_path / "losses.0").unlink()
    destination.receive([state])
    destination.resume()
    assert destination.ended() == [0]
    assert lines(tmp_path) == whole[8:]


def test_it_goes_on_where_it_was_stopped_or_killed(start: Start, undisturbed: list[str], tmp_path: Path):
    saves = {"SANJAYA_CHECKPOINT_DIR": str(tmp_path / "saved")}
    stopped = start("1", STOP_AFTER="13", **saves)
    stopped.stops_after(13)
    stopped.signal(signal.SIGTERM)  # also to the loader's workers
    stopped.goes_on_after(13)
    assert stopped.ended() == [143]
    assert checkpoints(tmp_path) == ["job-13"]
    killed = start("2", STOP_AFTER="22", CHECKPOINT_EVERY="4", **saves)
    killed.stops_after(22)
    killed.kill()
    assert checkpoints(tmp_path) == ["job-21"]
    (tmp_path / "saved" / "attempt-0" / "job-25.part").mkdir()
    (tmp_path / "saved" / "attempt-0" / "job-25.part" / "rank-0").write_bytes(b"half a state")
    (tmp_path / "go-22").touch()
    assert start("3", **saves).ended() == [0]
    found = lines(tmp_path)
    assert len(found) == len(undisturbed) + 1 and sorted(set(found)) == sorted(undisturbed)  # one batch was done again


def test_it_leaves_although_a_worker_had_a_lock_when_it_died(start: Start, undisturbed: list[str], tmp_path: Path):
    saves = {"SANJAYA_CHECKPOINT_DIR": str(tmp_path / "saved")}
    stopped = start("1", STOP_AFTER="4", STUCK="lock", STUCK_AT="9", **saves)  # the first of two, in batch 5
    stopped.stops_after(4)
    stopped.until((tmp_path / "stuck.0").exists)
    stopped.signal(signal.SIGTERM)
    stopped.goes_on_after(4)
    assert stopped.ended() == [143]
    assert checkpoints(tmp_path) == ["job-4"]
    assert start("2", **saves).ended() == [0]
    assert lines(tmp_path) == undisturbed


def test_it_leaves_while_it_waits_for_the_rest_of_a_batch(start: Start, undisturbed: list[str], tmp_path: Path):
    saves = {"SANJAYA_CHECKPOINT_DIR": str(tmp_path / "saved")}
    stopped = start("1", STUCK="message", STUCK_AT="9", **saves)
    stopped.until((tmp_path / "stuck.0").exists)
    stopped.signal(signal.SIGTERM)
    assert stopped.ended() == [143]
    assert checkpoints(tmp_path) == ["job-4"]
    assert start("2", **saves).ended() == [0]
    assert lines(tmp_path) == undisturbed


def test_it_leaves_from_where_it_stands_still(start: Start, undisturbed: list[str], tmp_path: Path):
    saves = {"SANJAYA_CHECKPOINT_DIR": str(tmp_path / "saved")}
    stopped = start("1", STOP_AFTER="13", **saves)
    stopped.stands_still_after(13)
    end_still(stopped)
    assert checkpoints(tmp_path) == ["job-13"]
    assert start("2", **saves).ended() == [0]
    assert lines(tmp_path) == undisturbed


def end_still(process: JobProcess) -> None:
    """Stop processes that stand still as an agent does, and see that their memory has not come back for that."""
    turn = current_turn(process.pages)
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
        process.signal(number)
    assert set(process.ended()) == {143}
    assert {page.acknowledged.turn for page in pages(process.pages)} == {turn}


def test_a_gang_leaves_from_where_it_stands_still(start: Start, tmp_path: Path):
    def gang(name: str, **how: Any) -> JobProcess:
        saved = str(tmp_path / "saved")
        return start(name, world_size=2, port=free_port(), SANJAYA_CHECKPOINT_DIR=saved, **how)

    stopped = gang("1", STOP_AFTER="5")
    stopped.stands_still_after(5)
    end_still(stopped)
    [name] = checkpoints(tmp_path)
    left = saved_at(tmp_path / "saved" / "attempt-0" / name)
    assert left == [int(name.removeprefix("job-"))] * 2
    assert gang("2").ended() == [0, 0]
    for rank in range(2):
        numbers = [line.split()[0] for line in lines(tmp_path, rank) if not line.startswith("epoch")]
        assert numbers == [str(number) for number in range(1, 31)]


def saved_at(checkpoint: Path) -> list[int]:
    """Batches that each of two ranks had done."""
    states = [(checkpoint / f"rank-{rank}").read_bytes() for rank in range(2)]
    return [position(state)["batches_done"] for state in states]


def checkpoints(folder: Path) -> list[str]:
    """In the order of attempts."""
    return [path.name for path in sorted((folder / "saved").glob("attempt-*/job-*"))]


def test_an_attempt_that_was_thought_lost_is_refused_and_the_newer_one_ends_as_if_alone(
    start: Start, undisturbed: list[str], tmp_path: Path
):
    """As when a node is silent for a while: its processes go on, or not, and another node goes on with the job."""
    saves = {"SANJAYA_CHECKPOINT_DIR": str(tmp_path / "saved"), "SANJAYA_JOB_ID": "j", "CHECKPOINT_EVERY": "4"}
    silent = start("1", SANJAYA_ATTEMPT="1", STOP_AFTER="10", **saves)
    silent.stops_after(10)
    newer = start("2", SANJAYA_ATTEMPT="2", STOP_AFTER="14", **saves)
    newer.stops_after(14)
    silent.goes_on_after(10)  # it is at its next checkpoint soon
    assert silent.ended() == [1]
    why = "fenced: attempt 2 keeps checkpoints in"
    assert why in silent.stderr.read_text()
    assert json.loads((silent.pages / "fenced.json").read_text())["why"].startswith(why)
    newer.goes_on_after(14)
    assert newer.ended() == [0]
    assert {path.parent.name for path in (tmp_path / "saved").glob("attempt-*/job-*")} == {"attempt-2"}
    assert sorted(set(lines(tmp_path))) == sorted(undisturbed)


def test_the_ranks_of_a_gang_move_and_leave_together(start: Start, tmp_path: Path):
    def gang(name: str, **how: Any) -> JobProcess:
        saved = str(tmp_path / "saved")
        return start(name, world_size=2, port=free_port(), SANJAYA_CHECKPOINT_DIR=saved, **how)

    source, destination = gang("1", STOP_AFTER="5"), gang("2", takes_over=True, STOP_AFTER="13")
    source.stands_still_after(5)
    source.save()
    states = source.saved()
    at = {position(state)["batches_done"] for state in states}
    assert len(at) == 1
    source.resume()
    assert source.ended() == [0, 0]
    whole = [lines(tmp_path, rank) for rank in range(2)]
    for rank in range(2):
        (tmp_path / f"losses.{rank}").unlink()
    destination.receive(states)
    destination.resume()
    destination.stops_after(13)
    destination.signal(signal.SIGTERM)
    destination.goes_on_after(13)
    assert destination.ended() == [143, 143]
    [name] = checkpoints(tmp_path)
    left = saved_at(tmp_path / "saved" / "attempt-0" / name)
    assert left == [int(name.removeprefix("job-"))] * 2
    [done] = at
    for rank in range(2):
        assert lines(tmp_path, rank) == whole[rank][done : left[rank] + 1]  # with the line of the first epoch's end


@pytest.mark.parametrize("keep", [{}, {"KEEP_WORKERS": "1"}], ids=["workers-for-an-epoch", "workers-for-all"])
def test_a_gang_leaves_although_its_workers_die_in_the_middle_of_a_batch(
    keep: dict[str, str], start: Start, tmp_path: Path
):
    def gang(name: str, **how: Any) -> JobProcess:
        saved = str(tmp_path / "saved")
        return start(name, world_size=2, port=free_port(), SANJAYA_CHECKPOINT_DIR=saved, SAMPLES="24", **keep, **how)

    stopped = gang("1", STUCK="message", STUCK_AT="17")  # the only worker of each, in batch 5 of 6
    stopped.until(lambda: all((tmp_path / f"stuck.{rank}").exists() for rank in range(2)))
    stopped.signal(signal.SIGTERM)
    assert stopped.ended() == [143, 143]
    assert checkpoints(tmp_path) == ["job-10"]
    assert gang("2").ended() == [0, 0]
    trained = [lines(tmp_path, rank) for rank in range(2)]
    for of_rank in trained:
        numbers = [line.split()[0] for line in of_rank if not line.startswith("epoch")]
        assert numbers == [str(number) for number in range(1, 19)]
    if not keep:  # workers that stay have random numbers of their own, which new ones cannot know
        for rank in range(2):
            (tmp_path / f"losses.{rank}").unlink()
        shutil.rmtree(tmp_path / "saved")
        assert gang("3").ended() == [0, 0]
        assert [lines(tmp_path, rank) for rank in range(2)] == trained


def test_a_process_that_waits_for_a_state_can_be_stopped_and_a_broken_state_is_refused(start: Start):
    stopped, broken = start("1", takes_over=True), start("2", takes_over=True)
    broken.put([b"half a state"])
    stopped.until_all(lambda page: page.handover.ready)
    stopped.signal(signal.SIGTERM)
    assert stopped.ended() == [143]
    assert broken.ended() == [1]
    assert "sanjaya: the state of this job cannot be taken over" in broken.stderr.read_text()
