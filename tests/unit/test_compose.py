"""docker-compose.yml starts what exists, with settings that exist."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import yaml
from torch_agent.service import PUBLISH_TIMEOUT_S

from libs.bus.connect import connect
from libs.bus.kafka.needs import BROKER_NEEDS
from libs.bus.kafka.session import COMMIT_TIMEOUT_S
from libs.bus.local_broker import kafka_version
from libs.node.task import LEAVING_PATIENCE_S
from libs.runtime.settings import Settings
from services.gateway.settings import GatewaySettings
from services.introspection.service import SERVICE as INTROSPECTION
from services.roster import SERVICES

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if str(service["image"]).startswith("sanjaya/")}


def test_every_core_has_a_container_and_every_container_a_program():
    commands = [service["command"] for service in OURS.values()]
    started = {command[3] for command in commands if command[2] == "libs.runtime"}
    own = {command[2].removeprefix("services.") for command in commands if command[2] != "libs.runtime"}
    assert started == {service.name for service in SERVICES} - own
    assert INTROSPECTION.name in own  # its core runs beside the shells of telemetry
    for service in OURS.values():
        assert service["command"][:2] == ["python", "-m"]
        assert importlib.util.find_spec(service["command"][2]) is not None


def test_every_variable_is_a_setting():
    known = {f"SANJAYA_{name.upper()}" for cls in (Settings, GatewaySettings) for name in cls.model_fields}
    for name, service in OURS.items():
        unknown = {key for key in service["environment"] if key.startswith("SANJAYA_")} - known
        assert not unknown, (name, unknown)


async def test_the_bus_url_is_understood():
    for service in OURS.values():
        bus = await connect(service["environment"]["SANJAYA_BUS"], service["environment"]["SANJAYA_CELL"])
        await bus.close()


def test_mounted_files_and_build_files_exist():
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (ROOT / source).exists(), source
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).exists()


def test_the_broker_is_the_one_that_the_tests_run_on():
    assert COMPOSE["services"]["kafka"]["image"] == f"apache/kafka:{kafka_version()}"


def test_what_is_stopped_has_the_time_that_it_needs():
    grace_s = {
        name: float(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s")) for name in (*OURS, "kafka")
    }
    assert all(grace_s[name] > 2 * COMMIT_TIMEOUT_S for name in OURS), grace_s
    assert grace_s["agent"] > LEAVING_PATIENCE_S + PUBLISH_TIMEOUT_S


def test_the_broker_is_set_to_what_a_cell_needs():
    environment = COMPOSE["services"]["kafka"]["environment"]
    found = {need.setting: environment.get(f"KAFKA_{need.setting.replace('.', '_').upper()}") for need in BROKER_NEEDS}
    stated = {setting: value for setting, value in found.items() if value is not None}
    assert {"offsets.retention.minutes", "message.max.bytes", "auto.create.topics.enable"} <= set(stated)
    assert [
        need.setting for need in BROKER_NEEDS if need.setting in stated and not need.met(stated[need.setting])
    ] == []


def test_everything_waited_for_is_there():
    for name, service in COMPOSE["services"].items():
        for other in service.get("depends_on", {}):
            assert other in COMPOSE["services"], (name, other)
