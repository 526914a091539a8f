"""What holds of shares where nodes are lost or drained and GPUs are cordoned, on the whole system in simulation."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from libs.contracts.failure_analysis import GpuSuspected
from libs.contracts.gateway import NodeUndrainRequested
from libs.contracts.placement import JobPreempted, NodeCordoned
from libs.contracts.quota import QuotaReclaimed
from libs.inspect.verify import verify
from libs.sim.options import FaultKind
from libs.testing.builders import OPERATOR, Scenario, events, log_of
from libs.testing.strategies import HORIZON_S
from services.roster import SERVICES
from tests.properties.test_virtual_clusters import (
    GPUS_PER_SERVER,
    ONE_CELL,
    SAID,
    Drawn,
    check_books,
    clusters,
    reclaims_what_it_can,
)
from tests.properties.test_whole_system import checked_run


@st.composite
def shrinking_clusters(draw: st.DrawFn) -> Drawn:
    """The same while GPUs are cordoned and returned, nodes drained, and GPUs out of order for a while."""
    drawn = draw(clusters())
    drawn.scenario.options(self_test_s=draw(st.sampled_from([1.0, 40.0, 150.0])))
    nodes = [f"v100-{number:03}" for number in range(drawn.gpus // GPUS_PER_SERVER)]
    for _ in range(draw(st.integers(1, 6))):
        at, for_s = float(draw(st.integers(0, 300))), float(draw(st.integers(1, 150)))
        node_id = draw(st.sampled_from(nodes))
        what = draw(st.sampled_from(["cordon", "cordon", "drain", "sick"]))
        if what == "drain":
            drawn.scenario.drain(node_id, at=at, until=at + for_s, now=False)
        elif what == "sick":
            drawn.scenario.fault(FaultKind.GPU_UNHEALTHY, node_id, at=at, for_s=for_s)
        else:
            for index in sorted(draw(st.sets(st.integers(0, GPUS_PER_SERVER - 1), min_size=1))):
                suspected = GpuSuspected(node_id=node_id, index=index, jobs=["x"], causes=["xid_79"], reason=SAID)
                drawn.scenario.plan(at, suspected)
    for node_id in nodes:  # what has failed its test is given back by an operator alone
        drawn.scenario.plan(HORIZON_S, NodeUndrainRequested(node_id=node_id, requested_by=OPERATOR))
    return drawn


@dataclass(frozen=True)
class Found:
    """What a search has found, made small."""

    reclaim_above: float
    guarantees: dict[str, int]
    jobs: list[tuple[int, int, str]]
    """(GPUs, when, tenant)."""
    longer: int
    """The job that runs for a second more than the others."""

    def drawn(self) -> Drawn:
        """On 8 GPUs, of which one is cordoned for a second."""
        scenario = Scenario().servers(GPUS_PER_SERVER, v100=8).options(interleaving=0, self_test_s=1.0)
        scenario.setting("quota", "reclaim_above", self.reclaim_above).setting("quota", "reclaim_rest_s", 0.0)
        for name, gpus in self.guarantees.items():
            scenario.tenant(name, None, guarantees={"v100": gpus})
        for number, (gpus, at, tenant) in enumerate(self.jobs):
            runs_s = 6.0 if number == self.longer else 5.0
            scenario.job(f"job-{number}", gpus, at=float(at), runs_s=runs_s, tenant=tenant, user="ann")
        scenario.plan(0.0, GpuSuspected(node_id="v100-000", index=0, jobs=["x"], causes=["xid_79"], reason=SAID))
        for node_id in ("v100-000", "v100-001"):
            scenario.plan(HORIZON_S, NodeUndrainRequested(node_id=node_id, requested_by=OPERATOR))
        return Drawn(scenario, 8, self.guarantees, 0.0, 0.0, len(self.jobs), "backfill", lags=True)


SOON = (1, 0, "a")
BEHIND_A_LARGE_ONE = [SOON, SOON, (8, 0, "b"), SOON, (2, 6, "b"), (2, 1, "a"), SOON, SOON, SOON, SOON]
BEHIND_A_LARGE_ONE += [(1, 6, "a"), (4, 0, "a"), SOON, (1, 1, "a")]
"""A job of b's guarantee stands behind one that no guarantee could ever back, and waits for more GPUs than are free."""
BEHIND_TWO = [(2, 2, "a"), SOON, SOON, (3, 0, "a"), (3, 8, "b"), (2, 7, "b"), SOON, (1, 2, "a"), (1, 1, "b")]
BEHIND_TWO += [(1, 8, "b")]
"""A job of b's guarantee stands behind one that borrows at last, and behind one that no guarantee could ever back."""


@ONE_CELL
@example(Found(0.9, {"a": 2, "b": 2}, BEHIND_A_LARGE_ONE, longer=11).drawn())
@example(Found(0.0, {"a": 1, "b": 2}, BEHIND_TWO, longer=3).drawn())
@given(shrinking_clusters())
def test_what_cannot_be_used_is_neither_lent_nor_owed(drawn: Drawn):
    """What is left goes to guarantees first, by weight; a cordon takes nothing from a job that runs."""
    simulation = checked_run(drawn.scenario, reclaims_what_it_can)
    control = simulation.log.control
    check_books(simulation, drawn)
    cordons = {envelope.id for envelope in control if isinstance(envelope.event, GpuSuspected | NodeCordoned)}
    victims = {victim.job_id for event in events(simulation, QuotaReclaimed) for victim in event.victims}
    for envelope in control:
        if isinstance(envelope.event, JobPreempted) and envelope.event.job_id not in victims:
            assert envelope.causation_id not in cordons
    result = verify(log_of(simulation), SERVICES)
    made_up = len(events(simulation, GpuSuspected))
    assert result.differences == made_up, "failure analysis has suspected nothing, and all else follows"
