"""Limits of memory on a real GPU: what torch's pools do, what lies on the host costs, and how fast memory moves.

AntMan, OSDI'20, sections 3.1.1 and 5.1, figures 10 and 11.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_agent.harness.memory.cuda import CudaMemory
from torch_agent.harness.memory.host_pool import HostPool

from tests.gpu.models import DEVICE, Training
from tests.gpu.transfers import transfers

GIB = 1 << 30
MOST_ON_HOST = 24 * GIB
WARM, MEASURED = 4, 6


def rules() -> dict[str, Any]:
    """What `use_on_oom` of this torch does: before or after cached blocks are given back, and for small tensors."""
    torch.zeros(1, device=DEVICE)
    pool, whole = HostPool(torch, MOST_ON_HOST), torch.cuda.get_device_properties(0).total_memory
    began = time.perf_counter()
    pool.want(5 * GIB)
    pool.admit(wait=True)
    ready_s = time.perf_counter() - began
    torch.cuda.set_per_process_memory_fraction((4 * GIB + pool.size) / whole)
    held = torch.empty(5 * GIB // 2, dtype=torch.uint8, device=DEVICE)
    cached = [torch.empty(GIB // 4, dtype=torch.uint8, device=DEVICE) for _ in range(5)]
    del cached
    tensor = torch.empty(3 * GIB // 8, dtype=torch.uint8, device=DEVICE)
    before_cached = pool.holds(tensor.data_ptr())
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / whole)
    small = [torch.empty(1000, device=DEVICE) for _ in range(8192)]
    began = time.perf_counter()
    used = pool.used()
    found = {
        "locking_gb_per_s": round(pool.size / 1e9 / ready_s, 2),
        "pool_gb": round(pool.size / 1e9, 2),
        "taken_before_cached_blocks_are_freed": before_cached,
        "small_on_host": f"{sum(pool.holds(each.data_ptr()) for each in small)} of {len(small)}",
        "used_gb": round(used / 1e9, 2),
        "to_ask_ms": round(1000 * (time.perf_counter() - began), 3),
    }
    del held, tensor, small
    torch.cuda.empty_cache()
    pool.want(0)
    torch.cuda.set_per_process_memory_fraction(1.0)
    left = {"left_gb": round(pool.size / 1e9, 2), "reserved_after_gb": round(torch.cuda.memory_reserved() / 1e9, 2)}
    return found | left


def kernels() -> dict[str, Any]:
    """Operations on tensors of the host, against the same on the GPU: which differ, and how much slower they are."""
    torch.zeros(1, device=DEVICE)
    pool, whole = HostPool(torch, MOST_ON_HOST), torch.cuda.get_device_properties(0).total_memory
    pool.want(5 * GIB)
    pool.admit(wait=True)
    differ, failed, elsewhere, slower = [], [], [], {}
    for name, operation in _operations().items():
        torch.manual_seed(0)
        try:
            expected, on_gpu_s, _ = _timed(operation)
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / whole)
            torch.manual_seed(0)
            found, on_host_s, at = _timed(operation)
            if not pool.holds(at):
                elsewhere.append(name)
            if not torch.allclose(expected, found, rtol=1e-3, atol=1e-4):
                differ.append(f"{name} by {float((expected - found).abs().max()):.3g}")
            slower[name] = round(on_host_s / on_gpu_s, 1)
        except Exception as error:
            failed.append(f"{name}: {str(error)[:120]}")
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    pool.want(0)
    return {
        "operations": len(slower) + len(failed),
        "differ": "; ".join(differ) or "none",
        "failed": "; ".join(failed) or "none",
        "results_not_on_host": " ".join(elsewhere) or "none",
        "times_slower": " ".join(f"{name} {times}" for name, times in slower.items()),
    }


def _timed(operation: Callable[[], Tensor]) -> tuple[Tensor, float, int]:
    """What it computes, how long that takes, and where the result lies."""
    operation()
    torch.cuda.synchronize()
    began = time.perf_counter()
    found = operation()
    torch.cuda.synchronize()
    took_s = time.perf_counter() - began
    return found.float().cpu(), took_s, found.data_ptr()


def _operations() -> dict[str, Callable[[], Tensor]]:
    def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, device=DEVICE, dtype=dtype)

    def learned(layer: nn.Module, *inputs: Tensor) -> Tensor:
        layer = layer.to(DEVICE)
        result = layer(*inputs)
        result = result[0] if isinstance(result, tuple) else result
        result.float().square().mean().backward()
        return torch.cat([p.grad.float().flatten() for p in layer.parameters() if p.grad is not None])

    def embedded() -> Tensor:
        layer = nn.Embedding(1000, 128)
        return learned(layer, torch.randint(0, 1000, (4096,), device=DEVICE))

    def added() -> Tensor:
        places = torch.randint(0, 100, (10_000,), device=DEVICE)
        return torch.zeros(100, 32, device=DEVICE).index_add_(0, places, torch.ones(10_000, 32, device=DEVICE))

    def scattered() -> Tensor:
        places = torch.randint(0, 100, (10_000, 32), device=DEVICE)
        return torch.zeros(100, 32, device=DEVICE).scatter_add_(0, places, torch.ones(10_000, 32, device=DEVICE))

    def attended() -> Tensor:
        queries, keys, values = (drawn(4, 8, 256, 64, dtype=torch.bfloat16) for _ in range(3))
        return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    def stepped() -> Tensor:
        layer = nn.Linear(512, 512).to(DEVICE)
        optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
        for _ in range(3):
            layer(drawn(64, 512)).square().mean().backward()
            optimizer.step()
        return layer.weight.detach()

    return {
        "matmul": lambda: drawn(1024, 1024) @ drawn(1024, 1024),
        "matmul bf16": lambda: drawn(1024, 1024, dtype=torch.bfloat16) @ drawn(1024, 1024, dtype=torch.bfloat16),
        "convolution": lambda: learned(nn.Conv2d(16, 32, 3, padding=1), drawn(8, 16, 64, 64)),
        "batch norm": lambda: learned(nn.BatchNorm2d(16), drawn(8, 16, 64, 64)),
        "layer norm": lambda: learned(nn.LayerNorm(512), drawn(256, 512)),
        "lstm": lambda: learned(nn.LSTM(128, 128, 2), drawn(32, 16, 128)),
        "embedding": embedded,
        "index_add": added,
        "scatter_add": scattered,
        "attention": attended,
        "adamw": stepped,
        "softmax": lambda: drawn(512, 4096).softmax(1),
        "sort": lambda: drawn(1 << 20).sort().values,
        "cumsum": lambda: drawn(1 << 20).double().cumsum(0),
        "sum": lambda: drawn(1 << 22).double().sum(),
    }


def _locked(memory: CudaMemory) -> None:
    """Wait until the host's memory is there, as it is some seconds after the first limit."""
    assert memory._pool is not None
    memory._pool.admit(wait=True)


def _end(memory: CudaMemory) -> None:
    """Give everything back."""
    memory.boundary(None)
    assert memory._pool is not None
    memory._pool.want(0)
    memory._pool.admit(wait=True)
    torch.cuda.empty_cache()


def minibatch_s(training: Training, count: int = MEASURED) -> float:
    """Of one in the middle; each is waited for."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        training.minibatch()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return median(times)


def _plainly(training: Training) -> float:
    """Seconds in which torch releases all that is cached; the process has all of it again afterwards."""
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        torch.cuda.empty_cache()
        times.append(time.perf_counter() - began)
        minibatch_s(training, 2)
    return median(times)


def shrinking(batch_size: int) -> dict[str, Any]:
    """Figure 11a: what is cached is released; then the limit rises, and the first mini-batch takes its memory anew."""
    training = Training("resnet-50", batch_size)
    memory = CudaMemory(torch, MOST_ON_HOST)
    minibatch_s(training, WARM)
    plain_s = _plainly(training)
    usage = memory.boundary(None)
    least = usage.device - usage.cached
    rows = []
    for number in range(5):
        torch.cuda.synchronize()
        before = torch.cuda.memory_reserved()
        began = time.perf_counter()
        small = memory.boundary(2 * least + GIB)
        shrunk = time.perf_counter()
        if not number:
            first_shrink_s = shrunk - began
            _locked(memory)
            shrunk = time.perf_counter()
        memory.boundary(None)
        grown = time.perf_counter()
        first = minibatch_s(training, 1)
        rest = minibatch_s(training)
        if number:
            rows.append((before, small.device, shrunk - began, grown - shrunk, first, rest))
    before, small_bytes, shrink_s, grow_s, first, rest = (median(column) for column in zip(*rows, strict=True))
    del training
    _end(memory)
    return {
        "from_gb": round(before / 1e9, 2),
        "to_gb": round(small_bytes / 1e9, 2),
        "in_use_gb": round(least / 1e9, 2),
        "first_shrink_ms": round(1000 * first_shrink_s, 1),
        "shrink_ms": round(1000 * shrink_s, 1),
        "torch_alone_ms": round(1000 * plain_s, 1),
        "lift_ms": round(1000 * grow_s, 1),
        "first_minibatch_ms": round(1000 * first, 1),
        "next_minibatches_ms": round(1000 * rest, 1),
        "growth_overhead_ms": round(1000 * (first - rest + grow_s), 1),
        "paper": "17.6 to 1.3 GB in 17 ms; overhead of growth 115 ms",
        "within_limit": shrink_s <= 0.017 and first - rest + grow_s <= 0.115,
    }


def _by_the_bus_at_least(training: Training, alone_s: float, lacking: int) -> float:
    """How much slower it is at the best, with so many bytes on the host between forward and backward.

    They go while forward computes and come while backward does; where the bus takes longer, both wait for it.
    """
    [bus] = transfers((GIB // 4,))
    training.forward()
    torch.cuda.synchronize()
    began = time.perf_counter()
    training.forward()
    torch.cuda.synchronize()
    forward_s = time.perf_counter() - began
    out_s, back_s = (lacking / 1e9 / bus[f"pinned_{way}_gb_per_s"] for way in ("out", "in"))
    return (max(0.0, out_s - forward_s) + max(0.0, back_s - (alone_s - forward_s))) / alone_s


def sensitivity(kind: str, batch_size: int, part: float, most: float) -> dict[str, Any]:
    """Figure 10: how much slower a model is with this part of its memory on the host."""
    plain = Training(kind, batch_size)
    expected = [float(plain.minibatch()) for _ in range(1 + WARM + MEASURED)]
    alone_s = minibatch_s(plain)
    peak = torch.cuda.max_memory_allocated()
    limit = int(peak * (1.0 - part))
    at_least = _by_the_bus_at_least(plain, alone_s, peak - limit)
    del plain
    torch.cuda.empty_cache()
    limited, memory = Training(kind, batch_size), CudaMemory(torch, MOST_ON_HOST)
    losses = [float(limited.minibatch())]  # a limit is set when one is over
    memory.boundary(limit)
    assert memory._pool is not None
    memory._pool.grow(peak - limit + 4 * GIB)
    devices, boundaries, times = [], [], []
    for _ in range(WARM + MEASURED):
        began = time.perf_counter()
        losses.append(float(limited.minibatch()))
        torch.cuda.synchronize()
        ended = time.perf_counter()
        usage = memory.boundary(limit)
        boundaries.append(time.perf_counter() - ended)
        times.append(ended - began)
        devices.append(usage.device)
    limited_s = median(times[WARM:])
    memory.boundary(None)
    whole_s = minibatch_s(limited, 2)
    found = {
        "model": f"{kind}, {batch_size} records",
        "peak_gb": round(peak / 1e9, 2),
        "limit_gb": round(limit / 1e9, 2),
        "device_gb": round(max(devices) / 1e9, 2),
        "most_on_host_gb": round(usage.most_on_host / 1e9, 2),
        "between_minibatches_gb": round(usage.host / 1e9, 2),
        "alone_ms": round(1000 * alone_s, 1),
        "limited_ms": round(1000 * limited_s, 1),
        "again_whole_ms": round(1000 * whole_s, 1),
        "boundary_ms": round(1000 * median(boundaries), 2),
        "slowed_by": round(limited_s / alone_s - 1.0, 3),
        "by_the_bus_at_least": round(at_least, 3),
        "most": most,
        "losses_apart": max(abs(a - b) for a, b in zip(expected, losses, strict=True)),
        "within_limit": limited_s / alone_s - 1.0 <= most,
    }
    del limited
    _end(memory)
    return found


def random_limits(kind: str, batch_size: int, changes: int) -> dict[str, Any]:
    """Losses under limits between a tenth and 1.2 of what the model wants, against those without limits."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    plain = Training(kind, batch_size)
    expected = [float(plain.minibatch()) for _ in range(changes)]
    peak = torch.cuda.max_memory_allocated()
    del plain
    torch.cuda.empty_cache()
    limited, memory, source = Training(kind, batch_size), CudaMemory(torch, MOST_ON_HOST), random.Random(0)
    memory.boundary(peak)
    assert memory._pool is not None
    memory._pool.grow(2 * peak)
    losses, beyond = [], 0
    for _ in range(changes):
        limit = int(peak * source.uniform(0.1, 1.2))
        memory.boundary(limit)
        losses.append(float(limited.minibatch()))
        beyond = max(beyond, memory.boundary(limit).device - limit)
    home = 0
    for home in range(4):  # noqa: B007
        if not memory.boundary(int(1.3 * peak)).host:
            break
        limited.minibatch()
    differ = sum(a != b for a, b in zip(expected, losses, strict=True))
    del limited
    _end(memory)
    torch.use_deterministic_algorithms(False)
    return {
        "model": f"{kind}, {batch_size} records",
        "changes": changes,
        "losses_that_differ": differ,
        "device_beyond_limit_mb": round(beyond / 1e6, 1),
        "home_after_minibatches": home,
        "within_limit": differ == 0 and home <= 2,
    }


def memory_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything."""
    yield "losses under random limits", random_limits("super-resolution", 16, 100)
    yield "losses under random limits", random_limits("resnet-50", 16, 100)
    yield "pools of the host", rules()
    yield "operations on memory of the host", kernels()
    yield "shrink and growth", shrinking(72)


def sensitivity_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Figure 10, and more of each model."""
    for kind, records, part, most in (
        ("resnet-50", 192, 0.1, 0.1),
        ("resnet-50", 192, 0.5, 0.6),
        ("vgg-16", 128, 0.5, 0.05),
        ("super-resolution", 64, 0.5, 0.25),
        ("super-resolution", 64, 0.9, 0.25),
    ):
        yield "a part on the host", sensitivity(kind, records, part, most)
