"""The demonstration's jobs, from the agent's examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[3] / "torch_agent" / "examples"


@dataclass(frozen=True)
class DemoJob:
    """A job, and how it is expected to end."""

    request: dict[str, Any]
    expect: str


@dataclass(frozen=True)
class Workload:
    """Tenants and jobs."""

    tenants: dict[str, int]
    """{name: most GPUs together}."""
    jobs: list[DemoJob]


def read(folder: Path = EXAMPLES, steps: int | None = None) -> Workload:
    """Read `workload.yaml`; the scripts are run where they lie.

    Args:
        steps: how long jobs train that are expected to succeed; None: as the file and their scripts have it.
    """
    document = yaml.safe_load((folder / "workload.yaml").read_text())
    jobs = []
    for job in document["jobs"]:
        request = {**job, "working_dir": str(folder), "user": "demo"}
        expect = request.pop("expect")
        if steps is not None and expect == "SUCCEEDED":
            request["command"] = [*request["command"], "--steps", str(steps)]
        jobs.append(DemoJob(request, expect))
    return Workload({tenant["name"]: tenant["gpus"] for tenant in document["tenants"]}, jobs)
