"""Heartbeats' samples of hosts, condensed: at most one HostProfiled per node and minute, the first at once."""

from __future__ import annotations

from collections.abc import Mapping

from libs.contracts.agent import HostSample, NodeHeartbeat
from libs.contracts.envelope import Envelope, whole_microseconds
from libs.contracts.introspection import OWNER, HostProfiled
from libs.kernel.ids import derived_id

INTERVAL_S = 60.0
NEVER = float("-inf")


class Hosts:
    """What was gathered of each node since its last HostProfiled.

    Up to when a node was profiled is read back from control, so that a restart reports nothing twice; `_until_s` covers
    the moment until a report is read back.
    """

    def __init__(self) -> None:
        self._gathered: dict[str, list[tuple[float, HostSample]]] = {}
        self._until_s: dict[str, float] = {}

    def take(self, beat: NodeHeartbeat, time_s: float, profiled_until_s: Mapping[str, float]) -> HostProfiled | None:
        """Take one heartbeat.

        Args:
            beat: of any node.
            time_s: its event time.
            profiled_until_s: {node: end of its last HostProfiled on the log}.

        Returns:
            The node's profile when one is due.
        """
        if beat.host is None:
            return None
        node_id = beat.node_id
        gathered = self._gathered.setdefault(node_id, [])
        gathered.append((time_s, beat.host))
        until_s = max(self._until_s.get(node_id, NEVER), profiled_until_s.get(node_id, NEVER))
        # A clock that was set back must not silence the node.
        if until_s <= time_s < until_s + INTERVAL_S:
            return None
        self._until_s[node_id] = time_s
        del self._gathered[node_id]
        return _condense(beat, gathered)

    def forget_all_but(self, nodes: Mapping[str, object]) -> None:
        """Forget nodes that are gone."""
        self._gathered = {node_id: each for node_id, each in self._gathered.items() if node_id in nodes}
        self._until_s = {node_id: each for node_id, each in self._until_s.items() if node_id in nodes}


def envelope(profile: HostProfiled, cause: Envelope) -> Envelope:
    """A profile on its way to the log: its id follows from what it measures."""
    key = f"host/{profile.node_id}/{profile.incarnation}/{profile.window_start_s}"
    return Envelope(
        id=derived_id(OWNER, key, 0), source=OWNER, time_s=cause.time_s, event=profile, causation_id=cause.id
    )


def _condense(beat: NodeHeartbeat, gathered: list[tuple[float, HostSample]]) -> HostProfiled:
    (first_s, _), (last_s, last) = gathered[0], gathered[-1]
    samples = [sample for _, sample in gathered]
    used = [sample.memory_used_bytes for sample in samples]
    return HostProfiled(
        node_id=beat.node_id,
        incarnation=beat.incarnation,
        window_start_s=whole_microseconds(min(first_s, last_s)),
        window_s=whole_microseconds(abs(last_s - first_s)),
        samples=len(samples),
        cpus=last.cpus,
        cpu_utilisation_ratio=round(sum(sample.cpu_utilisation_ratio for sample in samples) / len(samples), 4),
        memory_bytes=last.memory_bytes,
        memory_used_mean_bytes=sum(used) // len(used),
        memory_used_peak_bytes=max(used),
    )
