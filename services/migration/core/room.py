"""Free GPUs per server, as of now and after the moves that have just been thought of."""

from __future__ import annotations

from libs.contracts.features import OUTSIDE_POOLS, missing, side_of
from services.migration.core.assignments import gpu_type_of
from services.migration.core.state import Assignment, State


class Room:
    """Of all servers that jobs may be moved to."""

    def __init__(self, state: State, now_s: float) -> None:
        self._state, self._now_s = state, now_s
        self.free: dict[str, dict[str, int]] = {}
        """{node id: {GPU type: healthy GPUs that no job holds}}."""
        self.emptied: dict[str, None] = {}
        """Servers that a job is leaving."""
        self.filled: dict[str, None] = {}
        """Servers that a job is coming to."""
        self._most: dict[str, int] = {}
        """{GPU type: most free ones of any server}, as far as asked since the last plan."""
        taken = _taken(state)
        for node_id, server in state.servers.items():
            if server.present and node_id not in state.drains:
                counts: dict[str, int] = {}
                for index, gpu_type in enumerate(server.gpus):
                    free = index not in server.unhealthy and (node_id, index) not in taken
                    counts[gpu_type] = counts.get(gpu_type, 0) + free
                self.free[node_id] = counts
        for move in state.moves.values():
            self.emptied.update(dict.fromkeys(move.from_nodes))
            self.filled.update(dict.fromkeys(task.node_id for task in move.reserved))

    def servers_for(self, job_id: str, assignment: Assignment, *, but: list[str]) -> list[str]:
        """Servers with room for all of the job, and what else it needs, the fullest first; not those that a job is
        leaving."""
        gpu_type, gpus = gpu_type_of(self._state, assignment), assignment.width
        if gpus > self._most_free(gpu_type):  # on a crowded cluster that is the answer for nearly every job
            return []
        # A trial, of one GPU, stays in the pool; any other job goes, or stays, outside.
        needs = [*self._state.needs.get(job_id, ()), self._side_of(assignment)]
        fitting = [
            (counts[gpu_type], node_id)
            for node_id, counts in self.free.items()
            if counts.get(gpu_type, 0) >= gpus and node_id not in but and node_id not in self.emptied
        ]
        able = [pair for pair in fitting if not missing(needs, self._state.servers[pair[1]].features)]
        return [node_id for _, node_id in sorted(able)]

    def _most_free(self, gpu_type: str) -> int:
        if gpu_type not in self._most:
            self._most[gpu_type] = max((counts.get(gpu_type, 0) for counts in self.free.values()), default=0)
        return self._most[gpu_type]

    def _side_of(self, assignment: Assignment) -> str:
        here = self._state.servers.get(assignment.nodes[0])
        return side_of(here.features) if here is not None and assignment.width == 1 else OUTSIDE_POOLS

    def unchanged_s(self, node_id: str) -> float:
        """For how long the same jobs have held the same GPUs of the server."""
        return self._now_s - self._state.servers[node_id].changed_s

    def plan(self, assignment: Assignment, to_node: str, gpus: int | None = None) -> None:
        """The job is about to go there, or to grow there; what it leaves is not free before it has left."""
        more = assignment.width if gpus is None else gpus - assignment.width
        self.free[to_node][gpu_type_of(self._state, assignment)] -= more
        self._most.clear()
        if gpus is not None:
            return
        self.emptied.update(dict.fromkeys(assignment.nodes))
        self.filled[to_node] = None

    @property
    def is_full(self) -> bool:
        """Whether no server has a free GPU."""
        return not any(map(self.free_gpus, self.free))

    def free_gpus(self, node_id: str) -> int:
        """Of any type."""
        return sum(self.free.get(node_id, {}).values())


def _taken(state: State) -> dict[tuple[str, int], None]:
    """(Node id, index) of GPUs that are held by jobs, or reserved for moves."""
    gangs = [assignment.gang for assignment in state.assignments.values() if assignment.holds]
    gangs += [move.reserved for move in state.moves.values()]
    return {(task.node_id, index): None for gang in gangs for task in gang for index in task.gpu_indices}
