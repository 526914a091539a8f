"""A script that uses the lease iterator is stopped between batches and goes on where it was, to the same end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys, torch
from sanjaya_lease import LeaseIterator

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters())
data = [(torch.full((4, 8), i / 100), torch.full((4, 1), i / 50)) for i in range(400)]

def save(path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

def load(path):
    if "NOT_LOADED" in os.environ:
        return
    state = torch.load(path)
    model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])

lease = LeaseIterator(data, save=save, load=load)
while lease.batches_done < 400:
    for x, y in lease:
        x, y = data[lease.batches_done]
        optimizer.zero_grad(); loss = torch.nn.functional.mse_loss(model(x), y); loss.backward(); optimizer.step()
        if lease.batches_done % 50 == 0:
            print("step", lease.batches_done, flush=True)
            if len(sys.argv) > 1:
                sys.stdin.readline()
        if lease.batches_done == 399:
            print("loss", repr(loss.item()), flush=True)
            lease.batches_done += 1
            break
"""


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    from torch_agent.harness import inject_path

    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": inject_path(), "SANJAYA_CHECKPOINT_DIR": str(folder)}
    environment |= variables
    environment.pop("SANJAYA_HARNESS_DIR", None)
    command = [sys.executable, str(folder / "train.py"), *arguments]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_saves_when_the_lease_ends_and_goes_on_to_the_same_loss(tmp_path: Path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    undisturbed, _ = start(tmp_path / "whole").communicate(timeout=300)
    first = start(tmp_path / "parts", "stepwise")
    assert first.stdin is not None and first.stdout is not None
    for number in range(4):
        assert first.stdout.readline() == f"step {50 * number}\n"
        if number == 3:
            first.send_signal(signal.SIGTERM)
        first.stdin.write("\n")
        first.stdin.flush()
    rest = first.communicate(timeout=300)[0]
    assert first.returncode == 143 and "loss" not in rest
    assert [path.name for path in (tmp_path / "parts").glob("**/lease-*")] == ["lease-151"]
    resumed, _ = start(tmp_path / "parts").communicate(timeout=300)
    assert "step 150" not in resumed and "step 200" in resumed
    assert resumed.splitlines()[-1] == undisturbed.splitlines()[-1]


def test_an_attempt_that_is_not_the_newest_is_refused(tmp_path: Path):
    (tmp_path / "lease-151").write_bytes(b"what versions before attempts had folders have kept")
    first = start(tmp_path, "stepwise", SANJAYA_ATTEMPT="1", NOT_LOADED="1")
    assert first.stdin is not None and first.stdout is not None
    assert first.stdout.readline() == "step 200\n"
    (tmp_path / "attempt-2").mkdir()  # the newer one has begun
    first.send_signal(signal.SIGTERM)
    first.stdin.write("\n")
    first.stdin.flush()
    first.communicate(timeout=300)
    assert first.returncode == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempt-1", "attempt-2", "lease-151", "train.py"]
    assert not list((tmp_path / "attempt-1").iterdir())
