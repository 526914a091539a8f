"""What migration knows: who runs where, which nodes are being emptied, and the moves under way."""

from __future__ import annotations

import msgspec

from libs.kernel.service import InvariantViolated


class Seat(msgspec.Struct, kw_only=True):
    """Where a job's current attempt holds GPUs."""

    attempt: int
    nodes: list[str]


class Move(msgspec.Struct, kw_only=True):
    """A saga: started, not yet completed or failed."""

    migration_id: str
    attempt: int
    """The attempt that is to leave."""
    from_nodes: list[str]


class Drain(msgspec.Struct, kw_only=True):
    """A node that is being emptied, or is empty and kept so."""

    note: str
    moved_jobs: int = 0
    empty: bool = False


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    seats: dict[str, Seat] = {}
    """{job id: seat} of the jobs that hold GPUs."""
    moves: dict[str, Move] = {}
    """{job id: move}; at most one move per job."""
    drains: dict[str, Drain] = {}
    """{node id: drain}."""

    def jobs_on(self, node_id: str) -> list[str]:
        """Jobs that hold GPUs of the node, in order of placement."""
        return [job_id for job_id, seat in self.seats.items() if node_id in seat.nodes]


def check(state: State) -> None:
    """A drained node is empty."""
    for node_id, drain in state.drains.items():
        if drain.empty and state.jobs_on(node_id):
            raise InvariantViolated(f"node {node_id} was called drained, but {state.jobs_on(node_id)} hold GPUs there")
