"""Which processes a cell on one machine consists of."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_agent.options import Options, parse

from libs.cli.cell import CellPlan


def agents(plan: CellPlan, monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options of the plan's agents, as they read them."""
    monkeypatch.setattr("torch_agent.options.machine_cpus", lambda: [0, 1, 2, 3])
    found = []
    for command in plan.agent_commands():
        with monkeypatch.context() as started:
            for name, value in command.environment.items():
                started.setenv(name, value)
            found.append(parse(command.argv[command.argv.index("--node-id") :]))
    return found


def test_agents_side_by_side_have_cpus_of_their_own_and_their_virtual_gpus_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SANJAYA_PIN_VIRTUAL_GPUS", "SANJAYA_PART", "SANJAYA_CPUS"):
        monkeypatch.delenv(name, raising=False)
    plan = CellPlan(state_dir=tmp_path, agents=2, gpus_per_agent=2)
    assert [options.gpu_cpus for options in agents(plan, monkeypatch)] == [{0: 0, 1: 1}, {0: 2, 1: 3}]
    plan = CellPlan(state_dir=tmp_path, agents=2, gpus_per_agent=4)
    assert [options.gpu_cpus for options in agents(plan, monkeypatch)] == [{}, {}], "there are too few"
    plan = CellPlan(state_dir=tmp_path, agents=2, gpus_per_agent=4, pin_virtual_gpus=True)
    assert agents(plan, monkeypatch)[1].gpu_cpus == {0: 2, 1: 3, 2: 2, 3: 3}
    plan = CellPlan(state_dir=tmp_path, agents=1, gpus_per_agent=2, pin_virtual_gpus=False)
    assert agents(plan, monkeypatch)[0].gpu_cpus == {}
