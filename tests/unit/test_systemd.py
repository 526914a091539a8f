"""The systemd units start what exists, know how it ends, and leave running tasks alone."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from torch_agent.options import parse

from libs.bus.kafka.session import COMMIT_TIMEOUT_S
from libs.cli.context import USAGE
from libs.cli.running import ENDS_WITHIN_S
from libs.runtime import exits
from libs.runtime.settings import Settings
from services.gateway.settings import GatewaySettings
from services.roster import NAMES
from torch_agent import service as agent

FOLDER = Path(__file__).parents[2] / "infra" / "systemd"
UNITS = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".service", ".target"))
AGENTS = [path for path in UNITS if path.stem == "sanjaya-agent"]
CELL = FOLDER / "user" / "sanjaya.service"
SERVICES = [path for path in UNITS if path.stem in ("sanjaya-core@", "sanjaya-service@")]
PREFIX = "/opt/sanjaya/current"
OF_AGENTS = {"SANJAYA_ADDRESS", "SANJAYA_NODE_ID", "SANJAYA_RACK", "SANJAYA_CHECKPOINTS", "SANJAYA_TOKEN_FILE"}


def lines_of(unit: Path) -> dict[str, list[str]]:
    """{directive: its values}."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


def one(unit: Path, directive: str) -> str:
    [value] = lines_of(unit)[directive]
    return value


def no_restart(unit: Path) -> set[int]:
    return {int(code) for code in one(unit, "RestartPreventExitStatus").split()}


def test_the_target_starts_every_service_by_a_program_that_exists():
    wanted = [unit for line in lines_of(FOLDER / "system" / "sanjaya.target")["Wants"] for unit in line.split()]
    cores = {unit.removeprefix("sanjaya-core@").removesuffix(".service") for unit in wanted if "core@" in unit}
    others = {unit.removeprefix("sanjaya-service@").removesuffix(".service") for unit in wanted if "service@" in unit}
    assert cores | others == {*NAMES, "projection", "gateway"}
    assert not cores & others
    assert one(FOLDER / "system" / "sanjaya-core@.service", "ExecStart").endswith(" -m libs.runtime %i")
    assert one(FOLDER / "system" / "sanjaya-service@.service", "ExecStart").endswith(" -m services.%i")
    for name in others:
        assert importlib.util.find_spec(f"services.{name}.__main__") is not None


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_that_would_end_again_is_not_started_again(unit: Path):
    assert one(unit, "Restart") == "on-failure"
    assert no_restart(unit) == {exits.USAGE, exits.FENCED, exits.CONFIG}
    assert float(one(unit, "TimeoutStopSec")) > 2 * COMMIT_TIMEOUT_S


@pytest.mark.parametrize("unit", AGENTS, ids=lambda unit: unit.parent.name)
def test_tasks_outlive_their_agent(unit: Path):
    assert one(unit, "KillMode") == "process"
    assert one(unit, "OOMPolicy") == "continue"
    assert no_restart(unit) == {agent.EXIT_FENCED, agent.EXIT_REFUSED}
    assert float(one(unit, "TimeoutStopSec")) > agent.PUBLISH_TIMEOUT_S
    program, command, *arguments = one(unit, "ExecStart").split()
    assert (Path(program).name, command) == ("sanjaya", "agent")
    assert not parse([*arguments, "--bus", "memory:"]).requeue_on_exit


def test_tasks_outlive_a_users_cell():
    assert (one(CELL, "KillMode"), one(CELL, "OOMPolicy")) == ("process", "continue")
    assert "--on-exit keep" in one(CELL, "ExecStart")
    assert float(one(CELL, "TimeoutStopSec")) >= ENDS_WITHIN_S
    assert no_restart(CELL) == {USAGE}


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.env")), ids=lambda file: file.name)
def test_every_variable_is_a_setting(file: Path, monkeypatch: pytest.MonkeyPatch):
    known = {f"SANJAYA_{name.upper()}" for cls in (Settings, GatewaySettings) for name in cls.model_fields}
    for line in file.read_text().splitlines():
        name, is_set, value = line.removeprefix("#").partition("=")
        if is_set and name.isupper():
            assert name in known | OF_AGENTS
            monkeypatch.setenv(name, value)
    assert GatewaySettings().cell == "lab"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here")
@pytest.mark.parametrize("scope", ["system", "user"])
def test_systemd_takes_the_units_as_they_are(tmp_path: Path, scope: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "sanjaya"):
        (programs / name).symlink_to("/bin/true")
    units = []
    for path in sorted((FOLDER / scope).iterdir()):
        text = path.read_text().replace(f"{PREFIX}/bin", str(programs)).replace("%h/.local/bin", str(programs))
        (tmp_path / path.name).write_text(text)
        if path.suffix != ".env":
            units.append(str(tmp_path / path.name.replace("@", "@placement")))
    (tmp_path / "sanjaya-core@placement.service").symlink_to(tmp_path / "sanjaya-core@.service")
    (tmp_path / "sanjaya-service@placement.service").symlink_to(tmp_path / "sanjaya-service@.service")
    command = ["systemd-analyze", f"--{scope}", "--man=no", "verify", *units]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    about_ours = [line for line in said.stderr.splitlines() if str(tmp_path) in line or "sanjaya" in line]
    assert (said.returncode, about_ours) == (0, []), said.stderr
