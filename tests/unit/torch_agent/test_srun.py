"""`srun` in a batch script: which ranks it starts on this node, and what they are told."""

from __future__ import annotations

import shlex

import pytest
from torch_agent.srun import Ranks, Refused, parse, rank_environment, ranks

ONE = {"SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_GPUS_ON_NODE": "2", "SANJAYA_WORLD_SIZE": "2"}
SECOND = {**ONE, "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SANJAYA_RANK": "2", "SANJAYA_WORLD_SIZE": "4"}
UNEVEN = {**SECOND, "SLURM_GPUS_ON_NODE": "1", "SANJAYA_RANK": "3"}


@pytest.mark.parametrize(
    ("words", "environment", "found"),
    [
        ("", ONE, (0, 2, 2)),
        ("", SECOND, (2, 2, 4)),
        ("", UNEVEN, (3, 1, 4)),
        ("-n 4", UNEVEN, (3, 1, 4)),
        ("-n4", SECOND, (2, 2, 4)),
        ("--ntasks=2", SECOND, (1, 1, 2)),
        ("-n 6", ONE, (0, 6, 6)),
        ("--ntasks-per-node=3", SECOND, (3, 3, 6)),
        ("-N 1", {**SECOND, "SLURM_NODEID": "0", "SANJAYA_RANK": "0"}, (0, 2, 2)),
        ("-N 1 -n 2", SECOND, None),
        ("", {**ONE, "SLURM_NTASKS": "1"}, (0, 1, 1)),
        ("", {**SECOND, "SLURM_NTASKS_PER_NODE": "1"}, (1, 1, 2)),
        ("--ntasks-per-node 2", {**ONE, "SLURM_NTASKS": "1"}, (0, 2, 2)),
    ],
)
def test_each_node_starts_its_part(words: str, environment: dict[str, str], found: tuple[int, int, int] | None):
    said, _, command = parse([*shlex.split(words), "python", "-u", "train.py"])
    assert command == ["python", "-u", "train.py"]
    here = ranks(said, environment)
    assert (None if here is None else (here.first, here.here, here.world_size)) == found


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("-n two x", "-n 'two': expected a number"),
        ("-n 0 x", "-n '0': expected a number"),
        ("-n", "-n '': expected a number"),
        ("--multi-prog conf", "--multi-prog: expected -n, --ntasks-per-node or -N"),
        ("-n 2", "no command"),
    ],
)
def test_what_cannot_be_followed_is_named(words: str, why: str):
    with pytest.raises(Refused, match=why):
        parse(shlex.split(words))


@pytest.mark.parametrize(
    ("words", "why"), [("-N 3 x", "-N 3, but the job has 2 nodes"), ("-n 3 x", "3 ranks on 2 nodes; expected equally")]
)
def test_numbers_that_contradict_the_gang_are_named(words: str, why: str):
    said, _, _ = parse(shlex.split(words))
    with pytest.raises(Refused, match=why):
        ranks(said, SECOND)


def test_options_of_slurm_without_a_meaning_here_are_left_out():
    said, left_out, command = parse(shlex.split("--mpi=pmix -c 4 --cpu-bind=none -l -n 2 -- python -c 1"))
    assert (said, left_out) == ({"ntasks": 2}, ["--mpi", "-c", "--cpu-bind", "-l"])
    assert command == ["python", "-c", "1"]


def test_a_rank_is_told_its_place_as_slurm_and_torchrun_do():
    told = rank_environment(Ranks(first=2, here=2, world_size=4, nodes=2), 1, {"A": "1", "MASTER_PORT": "7"})
    assert told == {
        "A": "1",
        "MASTER_PORT": "7",
        "SANJAYA_RANK": "3",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NPROCS": "4",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NUM_NODES": "2",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
    }


def test_a_rank_that_is_alone_is_told_no_rank():
    told = rank_environment(Ranks(first=0, here=1, world_size=1, nodes=1), 0, {}, port=9)
    assert "RANK" not in told and told["SLURM_NTASKS"] == "1" and told["MASTER_PORT"] == "9"
