"""The rules on imports and clocks hold, and fail when they are broken on purpose."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import services.roster
from libs.contracts import agent, gateway, runtime
from libs.contracts.base import event_classes
from libs.runtime.roster import roster
from services.roster import NAMES, SERVICES
from tests.architecture import house
from tests.e2e.second_tree import PATCH, Replacement
from tests.e2e.test_mechanisms import LINES

ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "torch_agent/src/torch_agent/harness"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": "torch_agent/src"}
    )


def ruff(folder: Path, path: str) -> str:
    command = [str(Path(sys.executable).with_name("ruff")), "check", "--no-cache", "--output-format", "concise", path]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code, to be broken."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("libs", "services", "torch_agent"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_rules_hold(copy: Path):
    found = lint_imports(copy)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("services/placement/core/cluster/gangs.py", "import asyncio", "cores are pure"),
        (
            "services/placement/core/cluster/gangs.py",
            "import services.placement.core.lifecycle.queue",
            "placement: scheduler ->",
        ),
        (
            "services/placement/core/mechanisms/rounds/selection.py",
            "import services.placement.core.mechanisms.slicing.why",
            "placement: mechanisms are independent",
        ),
        (
            "services/placement/core/lifecycle/abandoning.py",
            "import services.placement.core.lifecycle.placing",
            "placement: no room imports another in a circle",
        ),
        ("libs/policies/policy.py", "import services.quota.service", "only the roster"),
        ("libs/bus/port.py", "import libs.inspect.archive", "libraries import each other in one direction"),
        ("libs/sim/world.py", "import libs.studies.report.page", "studies: reproduce ->"),
        ("services/quota/core/state.py", "import libs.bus.port", "cores are pure"),
        ("libs/lifecycle/life.py", "import asyncio", "cores are pure"),
        ("libs/lifecycle/fold.py", "import libs.policies.table", "contracts <- kernel"),
        ("libs/node/advance.py", "import libs.sim.agenda", "cores are pure"),
        ("libs/node/task.py", "import libs.policies.table", "contracts <- kernel"),
        ("services/quota/service.py", "import services.placement.service", "services never import each other"),
        ("libs/contracts/jobs.py", "import libs.kernel.ids", "contracts <- kernel"),
        ("libs/sim/world.py", "import services.roster", "only the roster"),
        ("libs/cli/audit.py", "def f():\n    import services.roster", "only the roster"),
        ("libs/runtime/process.py", "import services.placement.service", "only the roster"),
        ("libs/testing/builders.py", "import services.roster", "only the roster"),
        ("services/migration/core/improving.py", "import libs.policies.slicing.table", "what a policy is"),
        ("libs/cli/simulation.py", "import libs.policies.queueing.table", "what a policy is"),
        ("services/placement/core/lifecycle/requests.py", "import libs.policies.slicing.table", "what a policy is"),
        ("libs/cli/main.py", "import torch_agent", "libraries and services never import torch_agent"),
        ("libs/client/client.py", "import fastapi", "FastAPI: gateway alone"),
        ("libs/client/errors.py", "import aiokafka", "Kafka clients"),
        ("libs/inspect/why.py", "import sqlalchemy", "SQLAlchemy"),
        ("torch_agent/src/torch_agent/harness/page.py", "import msgspec", "the harness inside the job"),
    ],
)
def test_a_broken_import_rule_is_noticed(copy: Path, module: str, line: str, rule: str):
    with (copy / module).open("a") as file:
        file.write(f"\n{line}\n")
    found = lint_imports(copy)
    assert found.returncode != 0
    broken = [text for text in found.stdout.splitlines() if text.endswith("BROKEN") or text.startswith(rule)]
    assert any(text.startswith(rule) for text in broken), found.stdout


@pytest.mark.parametrize("line", ["import time", "import random", "import datetime\n\ndatetime.datetime.now()"])
def test_a_clock_or_a_dice_in_a_core_is_noticed(copy: Path, line: str):
    module = "services/placement/core/cluster/gangs.py"
    assert "TID251" not in ruff(copy, module)
    with (copy / module).open("a") as file:
        file.write(f"\n{line}\n")
    assert "TID251" in ruff(copy, module)


def test_the_harness_needs_no_package_of_ours_in_the_jobs_interpreter():
    """It is loaded by its path; an image may have neither `torch_agent` nor `libs`."""
    imported = [
        f"{path.relative_to(HARNESS)}: {line}"
        for path in sorted(HARNESS.rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if line.lstrip().startswith(("from torch_agent", "import torch_agent", "from libs", "import libs"))
    ]
    assert imported == []


def test_the_package_names_the_roster():
    assert roster() is services.roster


def test_the_rosters_names_are_those_of_its_services():
    assert tuple(service.name for service in SERVICES) == NAMES


def test_every_event_has_an_owner_and_requests_are_the_gateways():
    owners = {*NAMES, gateway.OWNER, agent.OWNER, runtime.TimerFired.owner}
    assert {cls.owner for cls in event_classes()} == owners
    for service in SERVICES:
        assert all(cls.owner == service.name for cls in service.observes), service.name
        assert all(cls.owner == gateway.OWNER for cls in service.requests), service.name


def test_every_service_has_the_same_shape():
    for service in SERVICES:
        folder = ROOT / "services" / service.name
        for name in ("README.md", "service.py", "core/state.py", "core/machine.py"):
            assert (folder / name).exists(), folder / name


def test_the_picture_of_the_house_in_the_readme_is_that_of_the_imports():
    assert house.block() in house.README.read_text(), "run `python -m tests.architecture.house`"


@pytest.mark.parametrize("replacement", [*PATCH, *LINES], ids=lambda replacement: replacement.path)
def test_what_makes_a_later_release_of_this_tree_fits_it(replacement: Replacement):
    """Here in milliseconds; the tests that run such a tree take minutes."""
    assert (ROOT / replacement.path).read_text().count(replacement.before) == 1
