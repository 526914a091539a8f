"""From files and directories to a request."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from libs.cli.job_options import gpus_of
from libs.cli.spec import from_file, pairs, rates
from libs.contracts.bad_input import BadInput


@pytest.mark.parametrize("text", ["command: [python, t.py]\ngpus: v100:2\n", '{"command": ["python", "t.py"]}'])
def test_yaml_and_json(tmp_path: Path, text: str):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert from_file(str(path))["command"] == ["python", "t.py"]


@pytest.mark.parametrize("content", [b"- a list", b"{", b"\xff\xfe", b""])
def test_other_files_are_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"job\.yaml"):
        from_file(str(path))
    with pytest.raises(BadInput, match="missing"):
        from_file(str(tmp_path / "missing"))


def test_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("command: [true]\nname: piped\n"))
    assert from_file("-")["name"] == "piped"
    script = "#!/bin/bash\n#SBATCH -J piped\necho\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(script))
    request = from_file("-")
    assert request["name"] == "piped" and request["command"] == ["/bin/bash", "-c", script]


def test_pairs():
    assert pairs(["A=1", "B=x=y", "C="], "--env") == {"A": "1", "B": "x=y", "C": ""}
    with pytest.raises(BadInput, match="--env"):
        pairs(["A"], "--env")


def test_rates():
    assert rates(["v100=12.5", "k80=3"], "--rate") == {"v100": 12.5, "k80": 3.0}
    with pytest.raises(BadInput, match="--rate: 'v100=fast'; expected TYPE=STEPS"):
        rates(["v100=fast"], "--rate")


@pytest.mark.parametrize(
    ("wanted", "nodes", "asked"),
    [
        ("v100:2", None, "v100:2"),
        ("v100:2", 1, {"count": 2, "types": ["v100"], "max_nodes": 1}),
        ("v100", 1, {"count": 1, "types": ["v100"], "max_nodes": 1}),
        ("4", 2, {"count": 4, "max_nodes": 2}),
        (4, 2, {"count": 4, "max_nodes": 2}),
        ({"count": 4, "types": ["k80"]}, 2, {"count": 4, "types": ["k80"], "max_nodes": 2}),
        ("v100:many", 1, "v100:many"),
    ],
)
def test_a_bound_on_servers_keeps_what_is_asked_for(wanted: object, nodes: int | None, asked: object):
    assert gpus_of(wanted, nodes) == asked
