"""What a job asks for beside its GPUs: for how many GPUs there are CPUs and memory enough, and all of it in words."""

from __future__ import annotations

from libs.contracts.features import described
from libs.contracts.jobs import JobSpec
from libs.kernel.words import bytes_of, counted


def gpus_beside(spec: JobSpec, most: int, cpus: int, memory_bytes: int) -> int:
    """For how many GPUs so many CPUs and so much memory are enough, as the job asks for them; at most so many."""
    for has, needs in ((cpus, spec.cpus), (memory_bytes, spec.memory_bytes)):
        if needs:
            most = min(most, max(0, has // needs))
    return most


def beside(spec: JobSpec) -> str:
    """` with 4 CPUs and 32.0 GiB of memory each`, behind the job's GPUs; empty where it asks for neither."""
    parts = [counted(spec.cpus, "CPU")] if spec.cpus is not None else []
    parts += [f"{bytes_of(spec.memory_bytes)} of memory"] if spec.memory_bytes is not None else []
    each = " each" if spec.gpus.count > 1 else ""
    return f" with {' and '.join(parts)}{each}" if parts else ""


def beside_them(spec: JobSpec) -> str:
    """` with as many CPUs and as much memory beside them`, behind the GPUs that there are."""
    parts = ["as many CPUs"] if spec.cpus is not None else []
    parts += ["as much memory"] if spec.memory_bytes is not None else []
    return f" with {' and '.join(parts)} beside them" if parts else ""


def on_nodes_with(spec: JobSpec) -> str:
    """` on nodes with data imagenet`, behind GPUs; empty for a job that needs no features."""
    return f" on nodes with {described(spec.needs)}" if spec.needs else ""
