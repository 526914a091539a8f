"""What a command beside a rank has in its environment."""

from __future__ import annotations

from torch_agent.environment import rank_environments, session_environment
from torch_agent.environments.activation import Activation
from torch_agent.sessions.entering import _of_rank

from libs.kernel.launchers import PER_NODE
from libs.testing.builders import launch


def environments(gpus: int, **changes: object) -> list[dict[str, str]]:
    return rank_environments(
        launch("j-1", "python", "train.py", gpus=gpus, **changes),
        base={"PATH": "/usr/bin"},
        gpu_uuids=[f"GPU-{number}" for number in range(gpus)],
        rendezvous=("127.0.0.1", 29500),
        checkpoint_dir="/c",
        harness_dir="/h",
        reports="/r",
        inject_path="/i",
        interpreter_dir="/p",
        activation=Activation("/p/python"),
        commands_dir="/b",
        gpu_memory_bytes=1,
        share_cpus=6,
    )


def test_it_sees_the_gpus_of_its_rank_and_is_no_rank():
    found = session_environment(environments(2)[1], session_id="x-1", term=None)
    assert (found["CUDA_VISIBLE_DEVICES"], found["SANJAYA_RANK"]) == ("GPU-0,GPU-1", "1")
    assert (found["SANJAYA_HARNESS"], found["SANJAYA_SESSION"]) == ("0", "x-1")
    assert found["SANJAYA_HARNESS_DIR"] == "/h", "by which it is found when the task ends"
    of_a_rank = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "SLURM_PROCID", "SANJAYA_REPORTS")
    assert [name for name in of_a_rank if name in found] == []
    assert "TERM" not in found


def test_it_has_the_kind_of_the_users_terminal():
    assert session_environment({"TERM": "dumb"}, session_id="x-1", term="xterm-256color")["TERM"] == "xterm-256color"


def test_ranks_of_a_launcher_share_its_environment():
    assert _of_rank(environments(4, launcher=PER_NODE, first_rank=4, world_size=8), 6)["SANJAYA_RANK"] == "4"
    assert _of_rank(environments(4), 3)["SANJAYA_RANK"] == "3"


def test_threads_are_those_of_the_ranks_cpus_unless_the_user_says_otherwise():
    assert environments(1)[0]["OMP_NUM_THREADS"] == "6", "a share of the node"
    asked = environments(2, cpus=4, memory_bytes=3 << 30)[1]
    assert (asked["OMP_NUM_THREADS"], asked["SLURM_CPUS_PER_GPU"], asked["SLURM_MEM_PER_GPU"]) == ("4", "4", "3072")
    assert environments(1, cpus=4, env={"OMP_NUM_THREADS": "2"})[0]["OMP_NUM_THREADS"] == "2"
