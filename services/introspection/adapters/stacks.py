"""What the processes of a stalled job were doing, asked of its nodes' agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from libs.contracts.introspection import JobStalled, Stack
from libs.node.serving import Agent
from libs.runtime.agents import AgentAway, Agents

PATIENCE_S = 3.0
"""A stall is told without stacks when they do not come: a process that waits for its disk may not answer."""
MOST_PROCESSES, MOST_CHARACTERS = 8, 4000
"""Of the whole job, and of one process, the last ones: its main thread comes last. All of it: `sanjaya stacks`."""


async def with_stacks(stalled: JobStalled, agents: Agents, nodes: Sequence[Agent]) -> JobStalled:
    """The fact with the stacks of the job's processes, as far as they can be had; says why where they cannot."""
    found = await asyncio.gather(*(_on(stalled, agents, node) for node in nodes))
    stacks = [stack for there, _ in found for stack in there]
    notes = [note for _, note in found if note]
    if len(stacks) > MOST_PROCESSES:
        notes.append(f"{len(stacks) - MOST_PROCESSES} more processes are left out")
    return msgspec.structs.replace(stalled, stacks=stacks[:MOST_PROCESSES], stacks_note="; ".join(notes))


async def _on(stalled: JobStalled, agents: Agents, node: Agent) -> tuple[list[Stack], str]:
    if not agents.can_ask(node):
        return [], f"node {node.node_id} was not asked: its agent and introspection need the same SANJAYA_CELL_KEY_FILE"
    try:
        async with asyncio.timeout(PATIENCE_S):
            items = await agents.stacks(node, stalled.job_id, stalled.attempt)
    except TimeoutError:
        return [], f"node {node.node_id} did not answer within {PATIENCE_S:g} s"
    except AgentAway as error:
        return [], str(error)
    return [
        Stack(
            node_id=node.node_id,
            rank=item["rank"],
            pid=item["pid"],
            text=item["text"][-MOST_CHARACTERS:],
            note=item["note"],
        )
        for item in items
    ], ""
