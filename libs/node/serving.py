"""What services and an agent agree on about files and stacks of jobs: where they are, and how a request is signed."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from libs.node.task import task_key

SIGNED = "Sanjaya-Signature"
"""Header of a request to an agent: `<end of validity, seconds since the epoch>:<signature>`."""
SIGNED_FOR_NODE = "Sanjaya-Node-Signature"
"""The same, made with the key of the node alone (`node_key`): for agents that were never given the cell's."""
VALID_S = 60.0
"""How long a signature is good for: clocks of a cell's machines may differ by nearly as much."""


@dataclass(frozen=True)
class Agent:
    """Where the agent of a node serves."""

    node_id: str
    address: str
    port: int
    """0: nowhere."""


def work_folder(state_dir: str, job_id: str, attempt: int) -> str:
    """The working directory of an attempt that names none, on the node of the agent with this state directory."""
    return f"{state_dir}/tasks/{task_key(job_id, attempt)}/work"


def output_folder(state_dir: str, job_id: str) -> str:
    """What is kept of a job on a node beyond its end."""
    return f"{state_dir}/outputs/{job_id}"


@dataclass(frozen=True)
class Proof:
    """By what an agent knows a request of its cell's."""

    key: bytes
    header: str = SIGNED


def node_key(cell_key: bytes, node_id: str) -> bytes:
    """The secret that the cell shares with one node: it opens this node's agent and no other."""
    return hmac.new(cell_key, f"node\n{node_id}".encode(), hashlib.sha256).digest()


def signed(key: bytes, node_id: str, target: str, now_s: float) -> str:
    """The value of the header for one request: it says that the sender has the cell's key.

    The key itself never travels, and what is signed is good for this node and this target alone: an agent that does
    not belong to the cell learns nothing with which it could ask others.

    Args:
        target: path and query, as they are sent.
    """
    until_s = int(now_s + VALID_S)
    return f"{until_s}:{_signature(key, node_id, target, until_s)}"


def is_signed(key: bytes, node_id: str, target: str, header: str, now_s: float) -> bool:
    """Whether the header's value was made with this key, for this node and target, and is still valid."""
    until, _, signature = header.partition(":")
    if not (until.isascii() and until.isdigit() and len(until) < 16):
        return False
    expected = _signature(key, node_id, target, int(until))
    return hmac.compare_digest(signature.encode(), expected.encode()) and now_s <= int(until) <= now_s + 2 * VALID_S


def _signature(key: bytes, node_id: str, target: str, until_s: int) -> str:
    return hmac.new(key, f"{node_id}\n{target}\n{until_s}".encode(), hashlib.sha256).hexdigest()
