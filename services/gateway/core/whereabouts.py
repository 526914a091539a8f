"""On which node the files of a job are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.contracts.read_models import AttemptRow, NodeRow
from libs.node.serving import Agent, output_folder, work_folder


@dataclass(frozen=True)
class Holder:
    """A node that has run a part of a job's latest attempt."""

    node_id: str
    attempt: int


def holder_of(attempts: Sequence[AttemptRow], rank: int = 0) -> Holder | None:
    """The node that ran a rank of the latest placed attempt; None: no attempt was placed, or it had fewer ranks.

    Args:
        attempts: oldest first.
    """
    if not attempts:
        return None
    latest = attempts[-1]
    for task in latest.placement:
        if task["first_rank"] <= rank < task["first_rank"] + len(task["gpu_indices"]):
            return Holder(task["node_id"], latest.attempt)
    return None


def agent_of(node: NodeRow) -> Agent:
    """Where the node's agent serves."""
    return Agent(node.id, node.address, node.files_port)


def folders_on(
    holder: Holder | None, node: NodeRow | None, job_id: str, spec: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """The job's working directory and the folder that is kept of it, on the node; None: there is none, or not known."""
    if holder is None or node is None or not node.state_dir:
        return None, None
    work = spec.get("working_dir") or work_folder(node.state_dir, job_id, holder.attempt)
    output = spec.get("output_dir")
    return work, f"{output_folder(node.state_dir, job_id)}/{output}" if output else None
