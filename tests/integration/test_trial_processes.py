"""A trial ends itself, in real training processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch_agent.harness import inject_path
from torch_agent.harness.trial import TRIAL_STEPS
from torch_agent.pages import read_page

CASES = str(Path(__file__).with_name("trial_cases.py"))


def tried(folder: Path, case: str) -> Counter[str]:
    """What a trial of three mini-batches prints, a line each; it ends well, and so many are on its page."""
    pages = folder / "pages"
    pages.mkdir()
    path = os.pathsep.join((inject_path(), os.environ.get("PYTHONPATH", "")))
    injected = {"SANJAYA_HARNESS_DIR": str(pages), "PYTHONPATH": path, TRIAL_STEPS: "3"}
    environment = {**os.environ, **injected, "SANJAYA_CHECKPOINT_DIR": str(folder / "checkpoints")}
    (folder / "checkpoints").mkdir()
    ran = subprocess.run([sys.executable, CASES, case], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "the trial ends after 3 mini-batches" in ran.stderr
    [page] = [reading for path in pages.glob("*.page") if (reading := read_page(path)) is not None]
    assert page.minibatches_total == 3
    return Counter(ran.stdout.split())


@pytest.mark.parametrize("case", ["plain", "stubborn"])
def test_a_trial_ends_after_its_mini_batches_also_where_the_script_catches_everything(tmp_path: Path, case: str):
    said = tried(tmp_path, case)
    assert (said["trained"], said["ended"]) == (3, 0)


def test_a_marked_validation_is_come_to_and_cut_short_and_what_is_behind_it_runs(tmp_path: Path):
    said = tried(tmp_path, "workers_and_validation")
    assert said == {"trained": 3, "validated": 3, "epoch": 1}


def test_a_script_without_a_loader_ends_at_its_step(tmp_path: Path):
    assert tried(tmp_path, "no_loader") == {"trained": 2}, "the third step is done, and what is behind it is not"


def test_an_elastic_job_saves_when_its_mini_batches_are_done_and_its_next_attempt_goes_on_there(tmp_path: Path):
    assert tried(tmp_path, "elastic") == {"trained": 3, "validated": 3}
    [saved] = (tmp_path / "checkpoints").glob("attempt-*/job-*")
    state = torch.load(saved / "rank-0", weights_only=False)
    position = state["position"]
    assert (position["epochs_done"], position["batches_in_epoch"], position["batches_done"]) == (0, 3, 3)
