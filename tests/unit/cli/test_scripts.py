"""Batch scripts that were written for Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.cli.scripts import from_script, slurm_seconds
from libs.contracts.bad_input import BadInput


def request_of(text: str) -> dict[str, object]:
    return from_script(text, "train.sh", ["/bin/bash", "train.sh"], "train")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("1:30:00", 5400),
        ("2-12", 216_000),
        ("2-12:30", 217_800),
        ("1-00:00:01", 86_401),
    ],
)
def test_slurm_counts_in_minutes(written: str, seconds: float):
    assert slurm_seconds(written) == seconds


def test_directives_become_the_request():
    request = request_of(
        "#!/bin/bash\n"
        "#SBATCH --job-name=resnet -t 30\n"
        "#SBATCH --gres gpu:v100:2   # two of them\n"
        "#SANJAYA --max-retries 3 --time 30\n"
        "#SANJAYA --class=guaranteed\n"
        "\n"
        "python train.py\n"
    )
    assert request == {
        "name": "resnet",
        "command": ["/bin/bash", "train.sh"],
        "working_dir": str(Path.cwd()),
        "gpus": "v100:2",
        "max_retries": 3,
        "time_limit_s": "30",
        "class": "guaranteed",
        "launcher": "per-node",
    }


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("#SBATCH --gpus 2\npython train.py\n", "per-node"),
        ("#SANJAYA --gpus 2\npython train.py\n", "per-node"),
        ("#SANJAYA --launch per-gpu\npython train.py\n", "per-gpu"),
        ("export A=1\ntorchrun train.py\n", "per-node"),
        ("python train.py\n", None),
    ],
)
def test_a_batch_script_is_run_once_per_node(text: str, launcher: str | None):
    assert request_of(f"#!/bin/bash\n{text}").get("launcher") == launcher


def test_the_number_of_ranks_is_passed_on_to_srun():
    request = request_of("#!/bin/bash\n#SBATCH --ntasks=4 --ntasks-per-node 2\nsrun python train.py\n")
    assert request["env"] == {"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}
    with pytest.raises(BadInput, match=r"train\.sh:2: -n 'two'; expected a number of ranks"):
        request_of("#!/bin/bash\n#SBATCH -n two\n")


def test_directives_behind_the_first_command_are_text():
    assert request_of("#!/bin/bash\necho\n#SBATCH --job-name=late\n")["name"] == "train"


def test_what_means_nothing_here_is_said(capsys: pytest.CaptureFixture[str]):
    request_of("#!/bin/bash\n#SBATCH --mail-type END --gpus 2\n#SBATCH --exclusive\n")
    assert capsys.readouterr().err.splitlines() == [
        "warning: train.sh:2: --mail-type has no meaning here and is ignored",
        "warning: train.sh:3: --exclusive has no meaning here and is ignored",
    ]


@pytest.mark.parametrize(
    "line", ["#SBATCH --time=soon", "#SANJAYA --priority=high", "#SBATCH --gres=disk:1", "#SBATCH --name='"]
)
def test_a_value_without_sense_is_refused_with_its_line(line: str):
    with pytest.raises(BadInput, match=r"train\.sh:2"):
        request_of(f"#!/bin/bash\n{line}\n")


@pytest.mark.parametrize(
    ("lines", "cpus", "memory_bytes"),
    [
        ("#SBATCH --cpus-per-gpu=4 --mem-per-gpu=32G", 4, 32 << 30),
        ("#SBATCH --mem-per-gpu 2048", None, 2 << 30),
        ("#SBATCH --gres=gpu:4 --cpus-per-task=8 --mem=64G", 2, 16 << 30),
        ("#SBATCH --gpus=2 --ntasks-per-node=2 -c 6", 6, None),
        ("#SBATCH --cpus-per-task=8 --cpus-per-gpu=3", 3, None),
        ("#SBATCH --gpus=4 -c 2", None, None),
        ("#SANJAYA --cpus 4 --mem 32GB", 4, "32GB"),
    ],
)
def test_cpus_and_memory_are_counted_per_gpu(lines: str, cpus: int | None, memory_bytes: object):
    request = request_of(lines + "\npython train.py\n")
    assert (request.get("cpus"), request.get("memory_bytes")) == (cpus, memory_bytes)
    assert "cpus per task" not in request and "memory per node" not in request


def test_memory_that_is_no_size_is_refused_with_its_line():
    with pytest.raises(BadInput, match=r"train.sh:1.*a size such as 32G"):
        request_of("#SBATCH --mem-per-gpu=much\n")
