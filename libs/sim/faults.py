"""What befalls nodes: crashes, lost networks, broken GPUs, agents that end or stand still, full disks, wrong clocks."""

from __future__ import annotations

from collections.abc import Mapping

from libs.contracts.introspection import NodeLost
from libs.sim.agenda import Agenda
from libs.sim.facts import Facts
from libs.sim.nodes import Node
from libs.sim.options import SILENCING, Fault, FaultKind, Options


class Faults:
    """Brings trouble to nodes, and ends it."""

    def __init__(self, agenda: Agenda, options: Options, seed: int, nodes: Mapping[str, Node], facts: Facts) -> None:
        self._agenda, self._options, self._seed, self._nodes, self._facts = agenda, options, seed, nodes, facts

    def plan(self) -> None:
        """Those that the options name."""
        for fault in self._options.faults:
            self._agenda.at(fault.time_s, self._befall, fault)

    def plan_crash(self, node: Node, number: int) -> None:
        """The next crash that is drawn for the node, if any is; `number`: of those before it."""
        crash = self._options.failures.crash(self._seed, node.node_id, number)
        if crash is not None:
            life_s, repair_s = crash
            time_s = self._agenda.now_s + life_s
            fault = Fault(time_s=time_s, node_id=node.node_id, kind=FaultKind.CRASH, duration_s=repair_s)
            self._agenda.at(time_s, self._befall, fault, number, awaited=False)

    def _befall(self, fault: Fault, number: int | None = None) -> None:
        """Trouble begins, if the node is not in trouble already."""
        node = self._nodes[fault.node_id]
        awaited = number is None
        end_s = self._agenda.now_s + fault.duration_s
        if _can_befall(node, fault.kind):
            self._begin(node, fault)
            self._agenda.at(end_s, self._relieve, fault, node.incarnation, awaited=awaited)
        if number is not None:
            self._agenda.at(end_s, self.plan_crash, node, number + 1, awaited=False)

    def _begin(self, node: Node, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.GPU_UNHEALTHY:
                node.set_health(0, healthy=False)
            case FaultKind.LEAVE:
                node.leave()
            case FaultKind.CRASH:
                node.crash()
            case FaultKind.AGENT_RESTART:
                node.agent_dies()
            case FaultKind.SILENCE | FaultKind.REFUSED_TOKEN:
                node.cut_off()
            case FaultKind.FREEZE:
                node.freeze()
            case FaultKind.JOURNAL_LOST:
                node.lose_journal()
            case FaultKind.DISK_FULL:
                node.fill_disk()
            case FaultKind.LATE:
                node.set_delivery(delay_s=fault.delay_s)
            case FaultKind.DOUBLED:
                node.set_delivery(repeats=True)
            case FaultKind.CLOCK:
                node.set_clock(fault.offset_s, fault.drift_ratio)
        is_silent = fault.kind in SILENCING and fault.kind is not FaultKind.LEAVE
        if self._options.lease is None and is_silent and fault.duration_s > self._options.detect_s:
            silent_s = float(self._options.detect_s)
            lost = NodeLost(node_id=node.node_id, silent_s=silent_s, incarnation=node.incarnation)
            self._agenda.after(self._options.detect_s, self._facts.find_lost, lost)

    def _relieve(self, fault: Fault, incarnation: int) -> None:
        """Trouble ends. A node that was called lost introduces itself anew."""
        node = self._nodes[fault.node_id]
        match fault.kind:
            case FaultKind.GPU_UNHEALTHY:
                node.set_health(0, healthy=True)
            case FaultKind.DISK_FULL:
                node.free_disk()
            case FaultKind.LATE | FaultKind.DOUBLED:
                node.set_delivery()
            case FaultKind.CLOCK:
                node.set_clock()
            case _ if node.incarnation != incarnation:
                return
            case FaultKind.FREEZE:
                is_long = self._is_long(node, fault)
                node.thaw()
                if is_long:
                    node.join()
            case FaultKind.SILENCE if not self._is_long(node, fault):
                node.catch_up()
            case _:
                node.join()

    def _is_long(self, node: Node, fault: Fault) -> bool:
        """Whether the node may have been called lost by the end of the fault, and so introduces itself anew."""
        lease = self._options.lease
        if lease is None:
            return fault.duration_s > self._options.detect_s
        return not lease.is_renewed_after(self._agenda.now_s - node.heard_s)


def _can_befall(node: Node, kind: FaultKind) -> bool:
    if kind in (FaultKind.GPU_UNHEALTHY, FaultKind.LEAVE):
        return node.reachable
    return node.heard or kind not in SILENCING
