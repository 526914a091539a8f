"""The processes of a cell are exchanged, one by one, for those of another tree, while jobs train on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
from sqlalchemy import create_engine, text
from torch_agent.harness import inject_path

from libs.cli.cell import Cell, CellPlan
from libs.cli.cell.cell import AGENTS_END_WITHIN_S
from libs.cli.cell.plan import Command
from libs.runtime.snapshots import Stored
from tests.e2e.changing_place import SPARE_TYPE, WIDEST, ChangingJob
from tests.e2e.second_tree import environment

SPARE = {"agent-n3": 1, "agent-n4": 1 + WIDEST}
"""{agent: its GPUs} of the servers for jobs that change their place: one leaves the first for the second, where another
grows; all other jobs are on the servers before them."""

SCRIPT = """
import itertools, os, sys, time
import libs.testing.quick_torch
import torch
from pathlib import Path

torch.set_num_threads(1)

def train(seed, losses, end, most, pause_s):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    with losses.open("a", buffering=1) as file:
        for _ in range(most):
            loss = (model(torch.randn(16, 8)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            file.write(loss.item().hex() + chr(10))
            if end.exists():
                break
            time.sleep(pause_s)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    train(int(sys.argv[2]), folder / f"{sys.argv[2]}.losses", folder / "end", sys.maxsize, 0.1)
"""
BY_HAND = """
import json, os, runpy, sys
from pathlib import Path
from train import train

folder, children = Path(sys.argv[1]), []
for name, environment in json.loads(sys.argv[3]).items():
    children.append(os.fork())
    if children[-1] == 0:
        os.environ.update(environment)
        sys.path.insert(0, sys.argv[4])
        sys.argv = ["changing.py", str(folder), name]
        runpy.run_path(str(folder / "changing.py"), run_name="__main__")
        sys.exit()
for seed, batches in json.loads(sys.argv[2]).items():
    train(int(seed), folder / f"{seed}.by_hand", folder / "never", batches, 0.0)
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


class UpgradedPlan(CellPlan):
    """Some of its servers are for jobs that change their place."""

    def agent_commands(self) -> list[Command]:
        return [replace(command, argv=[*command.argv, *_gpus(command.name)]) for command in super().agent_commands()]

    def of(self, tree: Path) -> UpgradedPlan:
        """The same cell, run by the code of a tree."""
        return replace(self, settings={**self.settings, **environment(tree)})

    def commands(self) -> dict[str, Command]:
        """{name: command} of the services and agents."""
        return {command.name: command for command in (*self.services(), *self.agent_commands())}


class UpgradedCell(Cell):
    """Its processes can be exchanged."""

    def exchange(self, command: Command) -> dict[str, Any] | None:
        """End a process in order and forget its snapshots; then start another in its place.

        Returns:
            The state that it has left, with `next_offset`; None for a process that keeps no snapshots.
        """
        with self._mutex:  # the supervisor is not to start it again
            child = self.children.pop(command.name)
            child.ask_to_end()
            child.wait_for_end(time.monotonic() + AGENTS_END_WITHIN_S)
        left = self._take_snapshots(command.name)
        self._add(command)
        return left

    def _take_snapshots(self, service: str) -> dict[str, Any] | None:
        engine = create_engine(self.plan.environment()["SANJAYA_DATABASE"])
        of_service = {"service": service}
        with engine.begin() as connection:
            rows = connection.execute(
                text("SELECT * FROM core_snapshots WHERE service = :service ORDER BY next_offset"), of_service
            ).all()
            connection.execute(text("DELETE FROM core_snapshots WHERE service = :service"), of_service)
        engine.dispose()
        if not rows:
            return None
        newest = Stored(service, rows[-1].next_offset, rows[-1].body, rows[-1].body_digest).open()
        return {"next_offset": newest.next_offset, **msgspec.json.decode(newest.state)}


def _gpus(agent: str) -> list[str]:
    """Options that take the place of those that all agents have."""
    return ["--virtual-gpus", str(SPARE[agent]), "--gpu-type", SPARE_TYPE] if agent in SPARE else []


def holders(placement: dict[str, Any]) -> dict[str, list[list[str]]]:
    """{node id: ids of the jobs that hold each of its GPUs} in a state of placement."""
    return {name: [gpu["holders"] for gpu in node["gpus"]] for name, node in placement["nodes"].items()}


def sanjaya(tree: Path, *arguments: str) -> tuple[int, Any]:
    """The command of a tree: its exit status, and the JSON document that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "libs.cli.main", *arguments],
        env={**os.environ, **environment(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def written(folder: Path) -> dict[str, list[str]]:
    """{seed, or name: losses} of the jobs that train in a folder."""
    return {path.stem: path.read_text().splitlines() for path in sorted(folder.glob("*.losses"))}


def by_hand(folder: Path, losses: dict[str, list[str]], changing: Sequence[ChangingJob]) -> dict[str, list[str]]:
    """The same training without a cell, for as many batches each.

    Args:
        folder: of the scripts.
        losses: of all jobs.
        changing: those among them that change their place.
    """
    (folder / "by_hand.py").write_text(BY_HAND)
    batches = {seed: len(lines) for seed, lines in losses.items()}
    changed = {job.name: job.by_hand(batches.pop(job.name)) for job in changing}
    arguments = (str(folder), json.dumps(batches), json.dumps(changed), inject_path())
    subprocess.run(
        [sys.executable, str(folder / "by_hand.py"), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    return {seed: (folder / f"{seed}.by_hand").read_text().splitlines() for seed in losses}


def ended_by_force(folder: Path) -> None:
    """End the processes that name a folder: the tasks that a cell's agents have left alone."""
    for process in of_folder(folder):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def of_folder(folder: Path) -> list[psutil.Process]:
    """The processes that name a folder."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(folder) in " ".join(process.info["cmdline"] or [])
    ]
