"""Environments of jobs, from the command line to the node: what is refused, what is said, a notebook."""

from __future__ import annotations

import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellPlan
from libs.client import Client
from libs.testing.leftovers import nothing_left_of
from tests.e2e.checking import checked
from tests.e2e.test_inside import Lab, first_line
from tests.e2e.test_rounds import wait_until

pytestmark = pytest.mark.e2e

JUPYTER = f"""#!{sys.executable} -IS
# Stands for Jupyter: serves one page, and says where as Jupyter does.
import http.server, sys

port = next(int(word.partition("=")[2]) for word in sys.argv if word.startswith("--port="))
server = http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler)
print(f"[I ServerApp]     http://127.0.0.1:{{port}}/lab?token=5ec2e7", file=sys.stderr, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("environments")
    (folder / "imagenet").mkdir()
    settings = {"SANJAYA_IMAGE_RUNNER": "none", "SANJAYA_DATA": f"imagenet={folder / 'imagenet'}"}
    plan = CellPlan(state_dir=folder / "cell", gateway_port=free_port(), settings=settings)
    with Cell(plan) as cell, Client(plan.gateway_url) as client:
        yield Lab(cell, client, folder)
        log = folder / "log.jsonl"
        log.write_bytes(b"".join(client.export()))
    checked(log)
    assert nothing_left_of(folder) == []


def test_what_no_node_has_is_refused_at_once(lab: Lab) -> None:
    code, out, err = lab.done("submit", "--no-upload", "--image", "ubuntu:24.04", "--", "true")
    assert (code, out) == (2, "") and "no node has a runner of container images (NeverFits)" in err
    code, _, err = lab.done("submit", "--no-upload", "--mount", "coco", "--", "true")
    assert code == 2 and "no node has data coco" in err
    code, _, err = lab.done("submit", "--no-upload", "--mount", "imagenet:/data", "--", "true")
    assert code == 2 and "SANJAYA_DATA_IMAGENET" in err
    (lab.folder / "wrong.env").write_text("A=1\nsecret words\n")
    code, _, err = lab.done("submit", "--no-upload", "--env-file", str(lab.folder / "wrong.env"), "--", "true")
    assert code == 2 and "wrong.env:2" in err and "secret" not in err
    assert list(lab.client.jobs()) == []


def test_variables_of_a_file_and_data_by_name_reach_the_job(lab: Lab) -> None:
    (lab.folder / "a.env").write_text("A=file\nB='from the file'\n")
    words = ("--env-file", str(lab.folder / "a.env"), "--env", "A=option", "--mount", "imagenet")
    script = 'echo "$A $B $SANJAYA_DATA_IMAGENET"'
    code, out, err = lab.done("run", "--no-upload", *words, "--", "/bin/sh", "-c", script)
    assert (code, out) == (0, f"option from the file {lab.folder / 'imagenet'}\n"), err


def test_a_job_that_is_being_set_up_says_so_and_a_setup_that_fails_is_its_own_reason(lab: Lab) -> None:
    go = lab.folder / "go"
    setup = f"while [ ! -e {go} ]; do sleep 0.05; done; exit 5"
    code, out, err = lab.done("submit", "--no-upload", "--setup", setup, "--", "true")
    assert code == 0, err
    job = out.strip()
    wait_until(lambda: lab.client.job(job)["message"].startswith("setting up: while"))
    assert lab.client.job(job)["state"] == "STARTING"
    for command in ("show", "why"):
        assert "setting up: while" in lab.done(command, job)[1]
    go.touch()
    code, out, _ = lab.done("wait", job)
    assert code == 1 and "setup ended with exit code 5" in out
    assert "setup_failed" in lab.done("story", job)[1]
    assert f"[setup] {setup}" in lab.done("logs", job)[1]


def test_a_notebook_is_reached_and_ends_with_ctrl_c(lab: Lab) -> None:
    venv = lab.folder / "jupyter"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "bin" / "jupyter").write_text(JUPYTER)
    (venv / "bin" / "jupyter").chmod(0o755)
    for keep, state in ((False, "CANCELLED"), (True, "RUNNING")):
        words = ("--venv", str(venv), "--no-upload", "--port", "0", *(("--keep",) if keep else ()))
        with lab.running("notebook", *words) as process:
            url = first_line(process.stdout)
            assert url.startswith("http://127.0.0.1:") and url.endswith("/lab?token=5ec2e7"), url
            with urllib.request.urlopen(url.replace("lab?token=5ec2e7", "")) as page:
                assert page.status == 200
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
        job = next(lab.client.jobs())["id"]
        wait_until(lambda job=job, state=state: lab.client.job(job)["state"] == state)
    lab.client.cancel(job, grace_s=0)
    wait_until(lambda: lab.client.job(job)["state"] == "CANCELLED")


def test_a_notebook_without_jupyter_says_what_to_do(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    path = "PATH=/usr/bin:/bin"
    code, out, err = lab.done("notebook", "--venv", str(tmp_path), "--no-upload", "--env", path)
    assert (code, out) == (1, "") and 'try: --setup "pip install jupyterlab"' in err
