"""Where the ranks of a gang on several nodes meet: a port of its first node that no other gang there uses."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.cluster import TaskPlacement
from libs.contracts.reasons import PendingReason, Reason
from services.placement.core.cell import Cell
from services.placement.core.cluster.nodes import Node
from services.placement.core.jobs import Meeting


def port_on(node: Node) -> int | None:
    """The next port that is free, going round; None when all are in use.

    Round, because processes of an attempt that has ended on the log may still be about to close theirs.
    """
    first, last = node.ports.first, node.ports.last
    begins = node.next_port if first <= node.next_port <= last else first
    every = (*range(begins, last + 1), *range(first, begins))
    return next((port for port in every if port not in node.meetings), None)


def none_left(cell: Cell, gang: Sequence[TaskPlacement]) -> Reason | None:
    """Why the gang cannot meet; None: it can, or need not."""
    if len(gang) < 2 or port_on(node := cell.nodes[gang[0].node_id]) is not None:
        return None
    message = f"gangs on several nodes use all of the ports {node.ports.first} to {node.ports.last} of {node.node_id}"
    return Reason(code=PendingReason.NO_RENDEZVOUS_PORT, message=message, numbers={"ports": len(node.meetings)})


def take(cell: Cell, gang: Sequence[TaskPlacement]) -> Meeting | None:
    """The gang meets at its first node; None when it need not, or cannot (in logs from before that was looked at)."""
    if len(gang) < 2:
        return None
    node = cell.nodes[gang[0].node_id]
    port = port_on(node)
    chosen = port if port is not None else node.next_port
    node.next_port = chosen + 1 if chosen < node.ports.last else node.ports.first
    if port is None:
        return None
    node.meetings.append(port)
    return Meeting(node_id=node.node_id, port=port)


def give_back(cell: Cell, meeting: Meeting | None) -> None:
    """The gang has left its GPUs."""
    if meeting is not None:
        cell.nodes[meeting.node_id].meetings.remove(meeting.port)
