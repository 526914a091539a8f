"""The wheel, in an environment of its own, without a clone and without torch: simulate, run a cell, audit its log."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from libs.bus.local_broker.network import free_port
from libs.testing.leftovers import nothing_left_of
from libs.testing.processes import outside_the_clone

pytest_plugins = ["libs.testing.wheel"]
pytestmark = pytest.mark.e2e

WITHIN_S = 150.0
TRACE = "job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s\na,0,t,,,1,,60\nb,0,t,,,2,,60\n"
JOB = "import sys\nprint('trained on', sys.version_info[0])\n"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A user's project, which has packages of the same names as this product."""
    for name in ("libs", "services", "torch_agent", "schemas"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is the package of a user')\n")
    (tmp_path / "train.py").write_text(JOB)
    return tmp_path


def sanjaya(installed: Path, folder: Path, *arguments: str, **variables: str) -> CompletedProcess[str]:
    return subprocess.run(
        [str(installed / "sanjaya"), *arguments],
        cwd=folder,
        env=outside_the_clone(folder, **variables),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


@pytest.fixture
def cell(installed: Path, elsewhere: Path) -> Iterator[str]:
    """The URL of a running one."""
    port = free_port()
    command = [str(installed / "sanjaya"), "up", "--state-dir", str(elsewhere / "cell"), "--port", str(port)]
    process = subprocess.Popen(
        command,
        cwd=elsewhere,
        env=outside_the_clone(elsewhere),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = [""]
        while "Ctrl-C ends it" not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1], "".join(said)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WITHIN_S)


def test_a_wheel_has_what_the_programs_read_below_one_folder(wheels: Path):
    [wheel] = wheels.glob("sanjaya_scheduler-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].removesuffix(".pth").partition("-")[0] for name in names} == {"sanjaya_scheduler"}
    for needed in (
        *("services/gateway/web/index.html", "schemas/asyncapi.yaml", "schemas/events/job.placed.v1.schema.json"),
        *("libs/bus/local_broker/pom.xml", "libs/bus/local_broker/server.properties.in"),
        *("torch_agent/harness/inject/sanjaya_job.py", "torch_agent/examples/workload.yaml"),
    ):
        assert f"sanjaya_scheduler/{needed}" in names
    assert len(list(wheels.glob("torch_agent-*.whl"))) == 1


def test_it_is_installed_beside_packages_of_the_same_names(installed: Path, elsewhere: Path):
    assert "simulate" in sanjaya(installed, elsewhere, "--help").stdout
    assert sanjaya(installed, elsewhere, "--version").stdout.strip() == "0.1.0"


def test_it_simulates(installed: Path, elsewhere: Path):
    (elsewhere / "trace.csv").write_text(TRACE)
    options = ("--trace", "trace.csv", "--cluster", "v100=2", "--policy", "strict_fifo", "--out", "result.json")
    done = sanjaya(installed, elsewhere, "simulate", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads((elsewhere / "result.json").read_text())["format"] == "simulation-result/1"


def test_a_cell_runs_a_job_and_serves_page_and_documents(installed: Path, elsewhere: Path, cell: str):
    gateway = {"SANJAYA_GATEWAY": cell}
    ran = sanjaya(installed, elsewhere, "run", "--gpus", "1", "--", "python", "train.py", **gateway)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "trained on 3" in ran.stdout
    for path in ("/", "/asyncapi.json"):
        got = subprocess.run(["curl", "-sSf", f"{cell}{path}"], capture_output=True, text=True, check=False)
        assert got.returncode == 0, got.stderr
    audit = sanjaya(installed, elsewhere, "replay", "--verify", **gateway)
    assert "0 differences" in audit.stdout, audit.stdout + audit.stderr
    down = sanjaya(installed, elsewhere, "down", "--state-dir", str(elsewhere / "cell"))
    assert down.returncode == 0, down.stderr
    assert "has ended" in down.stderr
    assert nothing_left_of(elsewhere / "cell") == []


def test_the_demonstration_says_before_anything_starts_what_is_missing(installed: Path, elsewhere: Path):
    done = sanjaya(installed, elsewhere, "demo", "--keep", "state")
    assert done.returncode == 1
    python = shlex.quote(str(installed / "python"))
    assert "lacks torch>=2.4 and scikit-learn>=1.5" in done.stderr
    # pip is among the packages of this environment, unless it was made by uv.
    commands = (f"{python} -m pip install", f"uv pip install --python {python}")
    assert any(f"{command} 'torch>=2.4' 'scikit-learn>=1.5'" in done.stderr for command in commands)
    assert not (elsewhere / "state").exists()
