"""The Kubernetes manifests fit their schemas, start what exists with settings that exist, and define what they use."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch_agent.options import parse
from torch_agent.service import PUBLISH_TIMEOUT_S

from libs.bus.connect import connect
from libs.bus.kafka.needs import BROKER_NEEDS
from libs.bus.kafka.session import COMMIT_TIMEOUT_S
from libs.bus.local_broker import kafka_version
from libs.node.task import LEAVING_PATIENCE_S
from libs.runtime.cell_key import read_key
from libs.runtime.settings import Settings
from services.gateway.adapters.tokens import Scope, Tokens
from services.gateway.settings import GatewaySettings
from services.roster import NAMES

INFRA = Path(__file__).parents[2] / "infra"
DATABASE = "postgresql+psycopg://user:secret@postgres.example/sanjaya"
KNOWN = {f"SANJAYA_{name.upper()}" for cls in (Settings, GatewaySettings) for name in cls.model_fields}
OF_AGENTS = {"SANJAYA_NODE_ID", "SANJAYA_ADDRESS", "SANJAYA_TOKEN_FILE"} | {
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
}
STRIMZI = "kafka.strimzi.io/v1"

Manifest = dict[str, Any]

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifests with secrets, and with the token that was printed in the file `token`."""
    found = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(INFRA / "kubernetes", found, ignore=shutil.ignore_patterns("secrets"))
    said = subprocess.run([str(found / "secrets.sh"), DATABASE], capture_output=True, text=True, check=True).stdout
    (found / "token").write_text(said)
    return found


@pytest.fixture(scope="module", params=["base", "strimzi"])
def manifests(folder: Path, request: pytest.FixtureRequest) -> list[Manifest]:
    made = subprocess.run(["kubectl", "kustomize", str(folder / request.param)], capture_output=True, check=True)
    return list(yaml.safe_load_all(made.stdout))


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """(name, specification) of each."""
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "DaemonSet"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def programs(manifests: list[Manifest]) -> dict[str, list[str]]:
    """{pod: words behind `python -m`}."""
    found = {}
    for name, pod in pods(manifests):
        [container] = pod["containers"]
        assert container["command"][:2] == ["python", "-m"], name
        found[name] = container["command"][2:]
    return found


def test_they_are_what_the_schemas_of_kubernetes_say(manifests: list[Manifest]):
    schemas = pytest.importorskip("kubernetes_validate", reason="the package kubernetes-validate is not installed here")
    for manifest in manifests:
        if manifest["apiVersion"] != STRIMZI:
            schemas.validate(manifest, schemas.latest_version(), strict=True)


def test_every_service_has_a_pod_and_every_pod_a_program(manifests: list[Manifest]):
    started = programs(manifests)
    cores = {words[1] for words in started.values() if words[0] == "libs.runtime"}
    own = {words[0].removeprefix("services.") for words in started.values() if words[0].startswith("services.")}
    assert cores | own == {*NAMES, "projection", "gateway"}
    assert not cores & own
    for words in started.values():
        assert importlib.util.find_spec(words[0]) is not None
    module, *options = started["agent"]
    assert module == "torch_agent.service"
    assert parse([*options, "--bus", "memory:"]).requeue_on_exit  # tasks end with their pod


def test_every_variable_is_a_setting(manifests: list[Manifest]):
    for manifest in manifests:
        if manifest["kind"] in ("ConfigMap", "Secret"):
            assert {key for key in manifest["data"] if key.isupper()} <= KNOWN
    for name, pod in pods(manifests):
        names = {variable["name"] for container in pod["containers"] for variable in container.get("env", [])}
        assert names <= (KNOWN | OF_AGENTS if name == "agent" else KNOWN), name


async def test_the_bus_url_is_understood(manifests: list[Manifest]):
    [cell] = [manifest["data"] for manifest in manifests if manifest["kind"] == "ConfigMap"]
    bus = await connect(cell["SANJAYA_BUS"], cell["SANJAYA_CELL"])
    await bus.close()
    [address] = [m["metadata"] for m in manifests if m["kind"] == "Service"]
    assert cell["SANJAYA_GATEWAY"].startswith(f"http://{address['name']}.{address['namespace']}.svc:")


def test_what_is_used_is_defined(manifests: list[Manifest]):
    defined = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    keys = {m["metadata"]["name"]: set(m["data"]) for m in manifests if m["kind"] == "Secret"}
    for name, pod in pods(manifests):
        used = set()
        for container in pod["containers"]:
            for source in container["envFrom"]:
                used |= {("ConfigMap", source[k]["name"]) for k in source if k == "configMapRef"}
                used |= {("Secret", source[k]["name"]) for k in source if k == "secretRef"}
        for volume in pod.get("volumes", []):
            if "secret" in volume:
                used.add(("Secret", volume["secret"]["secretName"]))
                items = {item["key"] for item in volume["secret"].get("items", [])}
                assert items <= keys[volume["secret"]["secretName"]]
            if "persistentVolumeClaim" in volume:
                used.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        assert used <= defined, name
        there = {volume["name"] for volume in pod.get("volumes", [])}
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= there, name
            image = container["image"].removeprefix("sanjaya/")
            assert (INFRA / "images" / f"{image}.Dockerfile").exists(), image


def test_what_is_stopped_has_the_time_that_it_needs(manifests: list[Manifest]):
    grace_s = {name: pod["terminationGracePeriodSeconds"] for name, pod in pods(manifests)}
    assert grace_s.pop("agent") > LEAVING_PATIENCE_S + PUBLISH_TIMEOUT_S
    assert all(seconds > 2 * COMMIT_TIMEOUT_S for seconds in grace_s.values()), grace_s


def test_no_service_is_fenced_by_its_successor(manifests: list[Manifest]):
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            assert manifest["spec"]["replicas"] == 1
            assert manifest["spec"]["strategy"] == {"type": "Recreate"}
        if manifest["kind"] == "DaemonSet":
            assert manifest["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_the_secrets_are_what_the_programs_take_and_stay(folder: Path):
    secrets = folder / "base" / "secrets"
    key, tokens = read_key(secrets / "cell.key"), Tokens.read(secrets / "tokens.yaml")
    operator = tokens.find((folder / "token").read_text().strip().removeprefix("SANJAYA_TOKEN="))
    assert operator is not None
    assert operator.may(Scope.OPERATE)
    agents = tokens.find((secrets / "agent.token").read_text().strip())
    assert agents is not None and agents.may(Scope.READ) and not agents.may(Scope.SUBMIT)
    again = subprocess.run([str(folder / "secrets.sh"), DATABASE], capture_output=True, text=True, check=True)
    assert again.stdout == ""
    assert read_key(secrets / "cell.key") == key


def test_another_database_is_refused_with_what_to_type(folder: Path):
    said = subprocess.run([str(folder / "secrets.sh"), "sqlite:///x"], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "sqlite:///x given; expected" in said.stderr
    assert "try: " in said.stderr


def test_without_secrets_nothing_is_made(tmp_path: Path):
    shutil.copytree(INFRA / "kubernetes", tmp_path / "k", ignore=shutil.ignore_patterns("secrets"))
    made = subprocess.run(["kubectl", "kustomize", str(tmp_path / "k" / "base")], capture_output=True, check=False)
    assert made.returncode != 0
    assert b"secrets/" in made.stderr


def test_the_broker_of_strimzi_is_set_to_what_a_cell_needs():
    pool, kafka = yaml.safe_load_all((INFRA / "kubernetes" / "strimzi" / "kafka.yaml").read_text())
    assert pool["metadata"]["labels"]["strimzi.io/cluster"] == kafka["metadata"]["name"] == "log"
    assert kafka["spec"]["kafka"]["version"].split(".")[:2] == kafka_version().split(".")[:2]
    config = {name: str(value).lower() for name, value in kafka["spec"]["kafka"]["config"].items()}
    stated = [need for need in BROKER_NEEDS if need.setting in config]
    assert len(stated) == 4
    assert [need.setting for need in stated if not need.met(config[need.setting])] == []
    assert int(config["min.insync.replicas"]) < int(config["default.replication.factor"]) <= pool["spec"]["replicas"]
