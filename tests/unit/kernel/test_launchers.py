"""Commands that start ranks themselves: which are known, and what they are told."""

from __future__ import annotations

import shlex

import pytest

from libs.kernel.launchers import (
    PER_GPU,
    PER_NODE,
    Place,
    conflict,
    conflict_here,
    filled_in,
    found_in,
    recognise,
    said,
    starts_ranks,
    torchrun_variables,
)

ONE = Place(gpus=2, world_size=2, node_rank=0, nodes=1, host="127.0.0.1", port=3000)
SECOND_OF_TWO = Place(gpus=2, world_size=4, node_rank=1, nodes=2, host="n1", port=3000)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("torchrun --nproc_per_node=2 train.py", "torchrun"),
        ("/opt/env/bin/torchrun train.py", "torchrun"),
        ("python -m torch.distributed.run train.py", "torchrun"),
        ("python3.11 -u -X dev -m torch.distributed.launch train.py", "torchrun"),
        ("accelerate launch train.py", "accelerate launch"),
        ("accelerate-launch train.py", "accelerate launch"),
        ("python -m accelerate.commands.launch train.py", "accelerate launch"),
        ("deepspeed train.py --deepspeed_config c.json", "deepspeed"),
        ("mpirun -np 2 python train.py", "mpirun"),
        ("mpiexec -n 2 python train.py", "mpirun"),
        ("lightning run model train.py", "lightning run"),
        ("fabric run train.py", "lightning run"),
        ("srun python train.py", "srun"),
        ("env A=1 torchrun train.py", "torchrun"),
        ("A=1 torchrun train.py", "torchrun"),
        ("/bin/sh -c 'torchrun train.py'", "torchrun"),
        ("python train.py", None),
        ("python -m train --launcher torchrun", None),
        ("python torchrun.py", None),
        ("accelerate config", None),
        ("lightning train.py", None),
        ("bash torchrun", None),
        ("env A=1", None),
        ("python -m", None),
        ("/bin/sh -c 'cd x && torchrun train.py'", None),
        ('/bin/sh -c "it\'s"', None),
    ],
)
def test_launchers_are_known_by_how_their_command_begins(command: str, name: str | None):
    found = recognise(shlex.split(command))
    assert (found.launcher.name if found is not None else None) == name


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("#!/bin/bash\nexport A=1\nsrun python train.py\n", "srun"),
        ("cd x && torchrun train.py", "torchrun"),
        ("if true; then A=1 python \\\n -m torch.distributed.run x.py; fi", "torchrun"),
        ("echo torchrun train.py\n", None),
        ("# torchrun train.py\npython train.py # srun x\n", None),
        ("", None),
    ],
)
def test_launchers_are_found_in_scripts(script: str, name: str | None):
    found = found_in(script)
    assert (found.name if found is not None else None) == name
    line = starts_ranks(["/bin/sh", "-c", script])
    assert (line.name if line is not None else None) == name


@pytest.mark.parametrize(
    ("command", "gpus", "max_nodes", "why"),
    [
        ("torchrun --nproc_per_node=2 train.py", 2, None, None),
        ("torchrun --nproc-per-node 2 --nnodes 2 train.py", 4, None, None),
        ("torchrun --nproc_per_node=2 train.py", 4, None, None),
        ("torchrun --nproc_per_node=gpu --nnodes=1:4 train.py", 2, None, None),
        ("torchrun train.py --nproc_per_node=8", 2, None, None),
        ("python -m torch.distributed.run --standalone --nproc_per_node=4 t.py", 2, None, "starts 4 processes, but"),
        ("torchrun --nproc_per_node=3 train.py", 4, None, "the job has 4 GPUs; expected as many processes as GPUs"),
        ("torchrun --nproc_per_node=2 --nnodes=2 train.py", 2, None, "on 2 nodes starts 4 processes"),
        ("torchrun --nproc_per_node=0 train.py", 2, None, "starts 0 processes"),
        ("torchrun --nnodes=2 train.py", 4, 1, "--nnodes=2, but the job runs on at most 1 node"),
        ("torchrun --nnodes=5 train.py", 4, None, "at most 4 nodes; expected 1 to 4, or nothing"),
        ("accelerate launch --num_processes=4 --num_machines 2 t.py", 4, None, None),
        ("accelerate launch --num_processes 4 train.py", 2, None, "accelerate launch --num_processes=4 starts 4"),
        ("deepspeed --num_gpus=4 train.py", 2, None, "deepspeed --num_gpus=4"),
        ("srun -n 4 python train.py", 2, None, "srun -n=4"),
        ("mpirun -np 8 python train.py", 2, None, None),
        ("python train.py --nproc_per_node=8", 2, None, None),
    ],
)
def test_numbers_that_contradict_the_job_are_named(command: str, gpus: int, max_nodes: int | None, why: str | None):
    found = conflict(shlex.split(command), gpus, max_nodes)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("command", "place", "why"),
    [
        ("torchrun --nnodes=2 t.py", ONE, "--nnodes=2, but the gang has 1 node; expected 1, or nothing"),
        ("torchrun --nnodes=2 t.py", SECOND_OF_TWO, None),
        ("torchrun t.py", SECOND_OF_TWO, None),
        ("mpirun python t.py", SECOND_OF_TWO, "the ranks of one node, but the gang has 2"),
        ("mpirun python t.py", ONE, None),
        ("srun -N 1 python t.py", SECOND_OF_TWO, None),
        ("python t.py", SECOND_OF_TWO, None),
    ],
)
def test_nodes_that_are_not_there_are_named(command: str, place: Place, why: str | None):
    found = conflict_here(shlex.split(command), place)
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("command", "place", "started"),
    [
        ("python train.py", ONE, "python train.py"),
        ("torchrun train.py", ONE, "torchrun train.py"),
        ("/bin/sh -c 'mpirun python t.py'", ONE, "mpirun -np 2 python t.py"),
        ("/bin/sh -c 'torchrun  t.py'", ONE, "/bin/sh -c 'torchrun  t.py'"),
        ("mpirun --mca btl self -n 1 python t.py", ONE, "mpirun --mca btl self -n 1 python t.py"),
        ("lightning run model t.py", ONE, "lightning run model --devices 2 --main_port 3000 t.py"),
        ("deepspeed --num_gpus 1 t.py", ONE, "deepspeed --master_port 3000 --num_gpus 1 t.py"),
        (
            "deepspeed t.py",
            SECOND_OF_TWO,
            "deepspeed --num_gpus 2 --master_port 3000 --no_ssh --num_nodes 2 --node_rank 1 --master_addr n1 t.py",
        ),
        (
            "accelerate launch --main-process-port 9 t.py",
            SECOND_OF_TWO,
            "accelerate launch --num_processes 4 --num_machines 2 --machine_rank 1 --main_process_ip n1 --multi_gpu "
            "--main-process-port 9 t.py",
        ),
        (
            "accelerate launch --use_fsdp t.py",
            ONE,
            "accelerate launch --num_processes 2 --num_machines 1 --main_process_port 3000 --use_fsdp t.py",
        ),
    ],
)
def test_launchers_are_told_of_the_gang_what_they_are_not_given(command: str, place: Place, started: str):
    assert filled_in(shlex.split(command), place) == shlex.split(started)


def test_torchrun_is_told_by_its_environment_so_that_options_count_more():
    told = torchrun_variables(["bash", "train.sh"], SECOND_OF_TWO)
    assert told == {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "2",
        "PET_MASTER_ADDR": "n1",
        "PET_MASTER_PORT": "3000",
    }


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ("--rdzv_backend=c10d", "n1:3000"),
        ("--rdzv-backend c10d --rdzv-endpoint=n2:1", None),
        ("--rdzv-backend static --master_addr=n7", None),
    ],
)
def test_other_rendezvous_get_an_endpoint_unless_one_is_given(options: str, endpoint: str | None):
    told = torchrun_variables(shlex.split(f"torchrun {options} train.py"), SECOND_OF_TWO)
    assert told.get("PET_RDZV_ENDPOINT") == endpoint


@pytest.mark.parametrize(
    ("launcher", "command", "gpus", "words"),
    [
        (PER_NODE, "torchrun train.py", 2, "torchrun starts the ranks itself: 1 process per node"),
        (PER_NODE, "python train.py", 2, "1 process per node"),
        (PER_NODE, "python train.py", 1, ""),
        (PER_GPU, "python train.py", 1, ""),
        (PER_GPU, "python train.py", 4, "4 processes, one per GPU, with RANK and WORLD_SIZE"),
        (PER_GPU, "torchrun train.py", 2, "2 processes, one per GPU"),
    ],
)
def test_the_number_of_processes_is_said_where_it_does_not_go_without_saying(
    launcher: str, command: str, gpus: int, words: str
):
    sentence = said(launcher, shlex.split(command), gpus)
    assert sentence == "" if not words else words in sentence
