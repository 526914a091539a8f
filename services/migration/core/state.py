"""What migration knows: servers, which jobs run or wait for their turn where, moves under way, nodes being emptied."""

from __future__ import annotations

import msgspec

from libs.contracts import settings
from libs.contracts.cluster import TaskPlacement, width_of
from libs.contracts.migration import OWNER
from libs.kernel.service import InvariantViolated


class Server(msgspec.Struct, kw_only=True):
    """A node that has joined."""

    gpus: list[str]
    """The type of each GPU."""
    present: bool = True
    features: list[str] = []
    """What jobs may need of it beside GPUs."""
    unhealthy: dict[int, None] = {}
    changed_s: float = 0.0
    """Since when the same jobs have held the same of its GPUs."""


class Assignment(msgspec.Struct, kw_only=True):
    """Where a job's current attempt is."""

    attempt: int
    gang: list[TaskPlacement]
    suspended_since_s: float | None = None
    """Since when it waits for its turn, or is paused; None while it holds its GPUs."""
    paused: bool = False
    """Its user has paused it: it goes on nowhere."""
    movable: dict[str, None] = {}
    """Nodes with a task that can hand over its state."""
    resizable: bool = False
    """To more or fewer processes, too."""
    exited: dict[str, None] = {}
    """Nodes where the task has ended."""
    rate_per_s: float = 0.0
    """Mini-batches per second, as profiled last; 0: not yet."""
    best_per_s: float = 0.0
    """The highest rate that it has been profiled with on GPUs of this type."""
    packed: bool = False
    """It shares its GPUs with another job."""
    rests_until_s: float = 0.0
    """It has just been moved, or could not be: it is not asked to move before."""

    @property
    def nodes(self) -> list[str]:
        """In the order of their ranks."""
        return [task.node_id for task in self.gang]

    @property
    def width(self) -> int:
        """GPUs."""
        return width_of(self.gang)

    @property
    def holds(self) -> bool:
        """Whether its GPUs are its own now."""
        return self.suspended_since_s is None

    @property
    def waits(self) -> bool:
        """Whether it would go on if it had GPUs."""
        return not self.holds and not self.paused


class Move(msgspec.Struct, kw_only=True):
    """A saga: started, not yet completed or failed."""

    migration_id: str
    attempt: int
    """The attempt that is to leave."""
    from_nodes: list[str]
    must_leave: bool = True
    reserved: list[TaskPlacement] = []
    """GPUs that placement keeps for it elsewhere."""


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has been moved live, and how fast it was before."""

    migration_id: str
    attempt: int
    before_per_s: float


class Drain(msgspec.Struct, kw_only=True):
    """A node that is being emptied, or is empty and kept so."""

    note: str
    now: bool = True
    """Jobs leave at once whatever they lose."""
    moved_jobs: int = 0
    empty: bool = False


class State(msgspec.Struct, kw_only=True):
    """Initially empty."""

    servers: dict[str, Server] = {}
    assignments: dict[str, Assignment] = {}
    """{job id: assignment} of the jobs that have been placed."""
    moves: dict[str, Move] = {}
    """{job id: move}; at most one move per job."""
    assessments: dict[str, Assessment] = {}
    """{job id: what its next profile is compared with}."""
    drains: dict[str, Drain] = {}
    """{node id: drain}."""
    leftovers: dict[str, dict[str, int]] = {}
    """{node id: {job id: attempt}}: tasks that were moved away and have not ended yet."""
    widths: dict[str, list[int]] = {}
    """{elastic job: on how many GPUs it may run, ascending}."""
    max_gpus: dict[str, int] = {}
    """{elastic job: most that its user lets it have}, where that was changed."""
    needs: dict[str, list[str]] = {}
    """{job: features that each of its servers must have}, of jobs that need any."""
    restartable: dict[str, None] = {}
    """Jobs that start again from a checkpoint."""
    queued: dict[str, None] = {}
    """Jobs that wait for GPUs, unless their users have paused them."""
    policy: str = ""
    look_at_s: float | None = None
    """When to look for jobs that should move; None: nothing has changed since the last look."""
    moves_at_once: float = settings.default(OWNER, "moves_at_once")
    move_rest_s: float = settings.default(OWNER, "move_rest_s")
    defrag_ratio: float = settings.default(OWNER, "defrag_ratio")
    interference: float = settings.default(OWNER, "interference")
    grow_after_s: float = settings.default(OWNER, "grow_after_s")

    def jobs_on(self, node_id: str) -> list[str]:
        """Jobs with a task on the node, in order of placement."""
        assigned = [job_id for job_id, assignment in self.assignments.items() if node_id in assignment.nodes]
        return [*assigned, *self.leftovers.get(node_id, {})]


def check(state: State) -> None:
    """A drained node is empty."""
    for node_id, drain in state.drains.items():
        if drain.empty and state.jobs_on(node_id):
            raise InvariantViolated(f"node {node_id} was called drained, but {state.jobs_on(node_id)} are there")
