"""Attempts at one job that share nothing but a folder: the newest keeps its checkpoints, older ones are refused."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_agent.folders import TaskFolder
from torch_agent.harness.attempts import AttemptFolder, Fenced
from torch_agent.harness.moving.checkpoints import Checkpoints


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checkpoints]:
    """Begins an attempt, as a process of it does."""

    def begin(number: int | None, job_id: str = "j", rank: int = 0, barrier: Any = lambda: None) -> Checkpoints:
        if number is None:
            monkeypatch.delenv("SANJAYA_ATTEMPT", raising=False)
            monkeypatch.delenv("SANJAYA_JOB_ID", raising=False)
        else:
            monkeypatch.setenv("SANJAYA_ATTEMPT", str(number))
            monkeypatch.setenv("SANJAYA_JOB_ID", job_id)
        checkpoints = Checkpoints(str(tmp_path / "saved"), rank, barrier)
        checkpoints.claim()
        return checkpoints

    return begin


def kept(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder / "saved")) for path in (folder / "saved").glob("**/job-*"))


def test_an_attempt_goes_on_from_the_one_before_and_keeps_its_own(attempt, tmp_path: Path):
    first = attempt(1)
    assert first.load() is None
    first.save({"at": 10}, 10)
    first.save({"at": 20}, 20)
    assert kept(tmp_path) == ["attempt-1/job-20"]
    second = attempt(2)
    assert second.load() == {"at": 20} and kept(tmp_path) == ["attempt-1/job-20"]
    second.save({"at": 30}, 30)
    assert kept(tmp_path) == ["attempt-2/job-30"], "there is one, whatever the number of attempts"


def test_an_attempt_that_is_not_the_newest_is_refused_and_harms_nothing(attempt, tmp_path: Path):
    first = attempt(1)
    first.save({"at": 350}, 350)
    second = attempt(2)
    assert second.load() == {"at": 350}
    with pytest.raises(Fenced, match=r"fenced: attempt 2 keeps .*; attempt 1 is not the newest"):
        first.save({"at": 360, "of": 1}, 360)
    second.save({"at": 360, "of": 2}, 360)
    with pytest.raises(Fenced):
        first.save({"at": 370, "of": 1}, 370)
    assert kept(tmp_path) == ["attempt-2/job-360"]
    assert attempt(3).load() == {"at": 360, "of": 2}
    with pytest.raises(Fenced):
        attempt(1)


def test_a_claim_between_the_look_and_the_rename_is_harmless(attempt, tmp_path: Path, monkeypatch):
    """Both orders: the older attempt completes its checkpoint before the newer reads, or after."""
    first = attempt(1)
    first.save({"at": 350}, 350)
    begun: list[Checkpoints] = []
    rename = os.replace

    def claimed_before(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", rename)
        begun.append(attempt(2))
        assert begun[0].load() == {"at": 350}
        rename(source, target)

    monkeypatch.setattr(os, "replace", claimed_before)
    with pytest.raises(Fenced):
        first.save({"at": 360, "of": 1}, 360)
    assert kept(tmp_path) == ["attempt-1/job-350", "attempt-1/job-360"], "what the newer one may be reading stays"
    begun[0].save({"at": 355, "of": 2}, 355)
    assert kept(tmp_path) == ["attempt-2/job-355"]
    assert attempt(3).load() == {"at": 355, "of": 2}


def test_the_attempt_that_came_further_does_not_count_but_the_newest(attempt, tmp_path: Path):
    attempt(1).save({"at": 900}, 900)
    second = attempt(2)
    second.save({"at": 100, "of": 2}, 100)
    (tmp_path / "saved" / "attempt-1" / "job-950").mkdir(parents=True)  # a stray has won the race of the test above
    assert attempt(3).load() == {"at": 100, "of": 2}


def test_what_versions_without_folders_of_attempts_have_kept_is_read(attempt, tmp_path: Path):
    for number in (40, 200):
        (tmp_path / "saved" / f"job-{number}").mkdir(parents=True)
        torch.save({"at": number}, tmp_path / "saved" / f"job-{number}" / "rank-0")
    (tmp_path / "saved" / "job-300.part").mkdir()
    (tmp_path / "saved" / "notes.txt").write_text("the script's own")
    checkpoints = attempt(3)
    assert checkpoints.load() == {"at": 200}
    checkpoints.save({"at": 210}, 210)
    assert kept(tmp_path) == ["attempt-3/job-210"]
    assert (tmp_path / "saved" / "notes.txt").exists()


def test_disk_does_not_grow_with_attempts_that_die_in_the_middle_of_a_checkpoint(attempt, tmp_path: Path):
    for number in range(1, 30):
        checkpoints = attempt(number)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save({"at": number}, 10 * number, barrier=_interrupted)
    last = attempt(30)
    last.save({"at": 30}, 300)
    assert kept(tmp_path) == ["attempt-30/job-300"]
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["attempt-30", "owner"]


def _interrupted() -> None:
    raise KeyboardInterrupt


def test_a_checkpoint_that_a_newer_attempt_has_removed_under_the_writer_is_no_failure(attempt, tmp_path: Path):
    first = attempt(1)

    def meanwhile() -> None:
        attempt(2).save({"at": 5}, 5)

    with pytest.raises(Fenced):
        first.save({"at": 10}, 10, barrier=meanwhile)
    assert kept(tmp_path) == ["attempt-2/job-5"]


def test_the_folder_of_another_job_is_refused_before_anything_is_done(attempt, tmp_path: Path):
    attempt(1, job_id="theirs").save({"at": 10}, 10)
    before = sorted((tmp_path / "saved").rglob("*"))
    with pytest.raises(ValueError, match=r"those of job theirs, and this is job ours: expected a folder of its own"):
        attempt(1, job_id="ours")
    assert sorted((tmp_path / "saved").rglob("*")) == before


def test_of_two_jobs_that_begin_in_one_folder_one_has_it(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SANJAYA_ATTEMPT", "1")
    monkeypatch.setenv("SANJAYA_JOB_ID", "b")
    late = AttemptFolder(str(tmp_path), "job-")  # it has looked, and nobody had the folder
    monkeypatch.setenv("SANJAYA_JOB_ID", "a")
    AttemptFolder(str(tmp_path), "job-").claim()
    monkeypatch.setenv("SANJAYA_JOB_ID", "b")
    with pytest.raises(ValueError, match="those of job a"):
        late.claim()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-1", "owner"]


def test_all_ranks_of_an_attempt_may_claim_at_the_same_time(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("SANJAYA_ATTEMPT", "2")
    monkeypatch.setenv("SANJAYA_JOB_ID", "j")
    folders = [AttemptFolder(str(tmp_path), "job-") for _ in range(16)]
    threads = [threading.Thread(target=folder.claim) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-2", "owner"]
    assert (tmp_path / "owner").read_text() == "j"


def test_by_hand_an_attempt_goes_on_in_the_newest_folder(attempt, tmp_path: Path):
    attempt(None).save({"at": 1}, 1)
    assert kept(tmp_path) == ["attempt-0/job-1"]
    attempt(4).save({"at": 2}, 2)
    by_hand = attempt(None)
    assert by_hand.load() == {"at": 2}
    by_hand.save({"at": 3}, 3)
    assert kept(tmp_path) == ["attempt-4/job-3"]


def test_the_agent_tells_the_end_of_a_fenced_attempt_as_an_interruption(attempt, tmp_path: Path, monkeypatch):
    folder = TaskFolder(tmp_path / "j.1")
    folder.make()
    monkeypatch.setenv("SANJAYA_HARNESS_DIR", str(folder.pages))
    first = attempt(1)
    result = {"version": 2, "exit_code": 1, "signal": None, "outcome": "exited", "rank": 0, "stderr_tail": "died"}
    (folder.path / "exit.json").write_text(json.dumps(result))
    ended = folder.look(starting=False, started=True).ended
    assert ended is not None and ended.outcome == "exited"
    attempt(2)
    with pytest.raises(Fenced):
        first.save({"at": 360}, 360)
    ended = folder.look(starting=False, started=True).ended
    assert ended is not None and (ended.outcome, ended.exit_code, ended.rank) == ("interrupted", None, 0)
    assert ended.stderr_tail.startswith("fenced: attempt 2 keeps checkpoints in ")
    (folder.path / "exit.json").write_text(json.dumps({**result, "exit_code": 0}))
    ended = folder.look(starting=False, started=True).ended
    assert ended is not None and ended.outcome == "exited", "one that has done all its work has not been fenced"
