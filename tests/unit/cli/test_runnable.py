"""Commands that name files which a node would not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.cli.runnable import named_file, require_files
from libs.cli.workdir import select
from libs.contracts.bad_input import BadInput


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("python train.py", "train.py"),
        ("python3.11 -u -X faulthandler src/train.py --out run.py", "src/train.py"),
        ("python -O train.py", "train.py"),
        ("/usr/bin/python3 train.py", "train.py"),
        ("bash -o pipefail run.sh", "run.sh"),
        ("torchrun --nproc_per_node 2 train.py --config c.yaml", "train.py"),
        ("python -m torch.distributed.run --standalone train.py", "train.py"),
        ("accelerate launch --mixed_precision bf16 train.py", "train.py"),
        ("./run.sh 1", "./run.sh"),
        ("bin/tool", "bin/tool"),
        ("train.py", "train.py"),
        ("python -c print(1)", None),
        ("bash -lc run.sh", None),
        ("python -m pytest tests/test_x.py", None),
        ("python - train.py", None),
        ("python", None),
        ("nvidia-smi -q", None),
        ("/opt/tool train.py", None),
        ("python /data/train.py", None),
        ("sleep 100", None),
    ],
)
def test_the_file_that_a_command_names(command: str, file: str | None):
    assert named_file(command.split()) == file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "src/evaluate.py", "conf.yaml", "old.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("")
    (tmp_path / ".gitignore").write_text("old.py\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("python trian.py", r"no such file in .* \(did you mean train\.py.*\?\); there are train\.py, package/"),
        ("python evaluate.py", r"did you mean src/evaluate\.py"),
        ("torchrun --nproc_per_node=2 missing.py", r"missing\.py: there is no such file"),
        (["python", "missing.py"], r"missing\.py: there is no such file"),
        ("python ../train.py", r"leads out of"),
        ("python old.py", r"a pattern of \.gitignore or \.sanjayaignore"),
        ("train.py", r"no program that a node finds; expected python train\.py"),
        ("./run.sh", r"may not be executed; expected bash \./run\.sh, or chmod \+x \./run\.sh"),
        ("python missing.py --lr {lr}", r"missing\.py: there is no such file"),
    ],
)
def test_a_missing_file_is_refused_with_what_is_there(folder: Path, command: str | list[str], says: str):
    with pytest.raises(BadInput, match=says):
        require_files(command, select(folder, 100))


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "python ./src/../train.py --lr {lr}",
        "python package",
        "bash run.sh",
        "cd src && python missing.py",
        "python {script}",
        "python $SCRIPT",
        ["sh", "-c", "python missing.py"],
        "true",
        "",
    ],
)
def test_what_is_there_or_not_certain_is_left_to_the_node(folder: Path, command: str | list[str]):
    require_files(command, select(folder, 100))
