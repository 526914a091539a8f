"""What limits of memory cost, and how fast they work, on a virtual GPU (AntMan, OSDI'20, sections 3.1.1 and 5.1).

    python -m tests.bench.memory_limits [BURSTS]

Without limits: a process with the allocator and one without train in turns, in blocks; medians of the ratios of CPU
time per mini-batch (a busy machine changes that little) and of wall time, block by block. Limits: one process moves
what it has to the host and back, tensors of 16 MiB and then of 1 MiB. `gb_per_cpu_s` is GB per second of CPU time of
the thread that moves them, the kernel's work for it included, the median of the rounds; `gb_s` is by wall time.
Tensors of 2 MiB and more move in huge pages; smaller ones, and all where the kernel has no huge pages, move in pages of
4 KiB, each of which costs more to get and to give back than to copy. Bursts: an owner beside a guest through a real
agent, each mini-batch of the owner at least three steps of coordination long (tests/integration/bursting_script.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torch_agent.environment import limited
from torch_agent.harness import inject_path
from torch_agent.harness.control import create_control
from torch_agent.probes.scaling import SOURCE, compiled

from tests.bench.report import Report

BLOCKS, WARM, MOVES = 14, 4, 9
DEVICE_BYTES = 4 << 30
LEAST_GB_S = 4.0
MOST_RATIO = 1.03
BURSTS = 100
SMALL_PART = 0.1
TENSOR_MIB, ALL_MIB = (16, 1), 512
MODELS = {"convolutional": 4, "transformer": 4, "large layers": 4}
"""{name: mini-batches per block}."""


def model_of(name: str) -> Any:
    """A mini-batch of it, as a function."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    if name == "convolutional":
        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
        model, batch = nn.Sequential(*layers), torch.randn(16, 3, 32, 32)
    elif name == "transformer":
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        model, batch = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), torch.randn(16, 64, 128)
    else:
        model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
        batch = torch.randn(8, 2048)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def worker(name: str) -> None:
    """Trains for as many mini-batches as each line of stdin says, and answers with the time that they took."""
    step = model_of(name)
    for line in sys.stdin:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        for _ in range(int(line)):
            step()
        print(json.dumps([time.process_time() - cpu_s, time.perf_counter() - wall_s]), flush=True)


def moving(tensor_mib: int) -> None:
    """Moves all but a tenth of what it has to the host, and back; then lets go of it.

    Writes three lines: what moved out, what came home, and what was released; for each the bytes, and the CPU time and
    the wall time of each round.

    Args:
        tensor_mib: size of each of its tensors.
    """
    import torch
    from torch_agent.harness.memory.preloaded import PreloadedMemory

    memory = PreloadedMemory.begin(torch, DEVICE_BYTES)
    assert memory is not None
    out, home, released = [], [], []
    for _ in range(MOVES):
        held = [torch.ones(tensor_mib << 18) for _ in range(ALL_MIB // tensor_mib)]
        memory.boundary(None)
        whole = memory.boundary(None).device
        small = timed(out, lambda whole=whole: memory.boundary(int(SMALL_PART * whole)))
        assert small.device <= SMALL_PART * whole and small.cached == 0
        assert timed(home, lambda: memory.boundary(None)).host == 0
        del held
        assert timed(released, lambda: memory.boundary(0)).device == 0
    for size, rounds in ((small.host, out), (small.host, home), (whole, released)):
        print(json.dumps([size, [cpu_s for cpu_s, _ in rounds], [wall_s for _, wall_s in rounds]]))


def timed(rounds: list[tuple[float, float]], work: Any) -> Any:
    cpu_s, wall_s = time.thread_time(), time.perf_counter()
    found = work()
    rounds.append((time.thread_time() - cpu_s, time.perf_counter() - wall_s))
    return found


def compare(report: Report, library: Path, folder: Path) -> None:
    for name, minibatches in MODELS.items():
        processes = [trainer(name, library if preloads else None, folder) for preloads in (False, True)]
        cpu_ratios, wall_ratios, plain_s = [], [], []
        for block in range(BLOCKS):
            order = (0, 1) if block % 2 else (1, 0)
            took = {which: ask(processes[which], minibatches) for which in order}
            if block >= WARM:  # the first ones warm up
                cpu_ratios.append(took[1][0] / took[0][0])
                wall_ratios.append(took[1][1] / took[0][1])
                plain_s.append(took[0][0] / minibatches)
        for process in processes:
            process.stdin.close()
            process.wait()
        ratio = statistics.median(cpu_ratios)
        report.row(
            f"no limit: {name}",
            minibatch_cpu_ms=round(statistics.median(plain_s) * 1e3, 2),
            cpu_ratio=round(ratio, 3),
            wall_ratio=round(statistics.median(wall_ratios), 3),
            within_limit=ratio <= MOST_RATIO,
        )


def trainer(name: str, library: Path | None, folder: Path) -> subprocess.Popen[str]:
    pages = Path(tempfile.mkdtemp(dir=folder))
    create_control(pages)
    plain = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((inject_path(), os.environ.get("PYTHONPATH", ""), str(Path.cwd()))),
        "OMP_NUM_THREADS": "1",
        "SANJAYA_HARNESS_DIR": str(pages),
        "SANJAYA_GPU_MEMORY_LIMIT_BYTES": str(DEVICE_BYTES),
    }
    environment = limited(plain, library) if library is not None else plain
    command = [sys.executable, "-m", "tests.bench.memory_limits", "worker", name]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: Any, minibatches: int) -> list[float]:
    process.stdin.write(f"{minibatches}\n")
    process.stdin.flush()
    found: list[float] = json.loads(process.stdout.readline())
    return found


def move(report: Report, library: Path, tensor_mib: int) -> None:
    command = [sys.executable, "-m", "tests.bench.memory_limits", "moving", str(tensor_mib)]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    for what, line in zip(
        ("tensors move to the host", "and home", "cached blocks are released"), done.stdout.splitlines(), strict=True
    ):
        size, cpu_s, wall_s = json.loads(line)
        rate = size / statistics.median(cpu_s) / 1e9
        limited = tensor_mib == TENSOR_MIB[0] and what != "and home"
        limit = {"within_limit": rate >= LEAST_GB_S} if limited else {}
        wall = size / statistics.median(wall_s) / 1e9
        report.row(
            what,
            tensor_mib=tensor_mib,
            megabytes=size // 1_000_000,
            gb_per_cpu_s=round(rate, 2),
            gb_s=round(wall, 2),
            **limit,
        )


async def burst(report: Report, folder: Path, count: int) -> None:
    from libs.contracts.agent import NodeJoined
    from tests.integration import test_memory_bursts as bursts
    from tests.integration.agent_case import AgentCase

    environment = {"SANJAYA_PEAK_S": "1"}
    async with AgentCase(folder, virtual_gpus=1, gpu_memory_bytes=bursts.CAPACITY, environment=environment) as case:
        await case.fact(NodeJoined)
        both = bursts.Bursting(case, folder)
        await both.begin(guest_s=0.02)
        broken = [fact.minibatches for fact in await both.bursts(count)]
        await both.end()
    allowed, had, steps = bursts.most_allowed(both.steps())
    report.row(
        "bursts of an owner beside a guest",
        bursts=count,
        minibatches_median=statistics.median(broken),
        minibatches_most=max(broken),
        steps=steps,
        most_allowed_ratio=round(allowed / bursts.CAPACITY, 4),
        most_on_device_ratio=round(had / bursts.CAPACITY, 4),
        within_limit=statistics.median(broken) <= bursts.MEDIAN_MOST
        and max(broken) <= bursts.MOST
        and max(allowed, had) <= bursts.CAPACITY,
    )


def main(count: int) -> None:
    report = Report("memory_limits", "Limits of memory on a virtual GPU")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = compiled(SOURCE, folder / "lib", os.environ["PATH"])
        for tensor_mib in TENSOR_MIB:
            move(report, library, tensor_mib)
        compare(report, library, folder)
        (folder / "cell").mkdir()
        asyncio.run(burst(report, folder / "cell", count))
    report.write()
    sys.exit(0 if report.all_within_limits() else 1)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["worker"]:
        worker(arguments[1])
    elif arguments[:1] == ["moving"]:
        moving(int(arguments[1]))
    else:
        main(int(arguments[0]) if arguments else BURSTS)
