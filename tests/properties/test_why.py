"""After what `why` says, the job starts at the next decision: tried on the cell itself, in situations at random."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import assume, given
from hypothesis import strategies as st

from libs.contracts.agent import JobExited
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobPlaced, TimeSliceStarted
from libs.contracts.read_models import JobState
from libs.forecast.branch import Branch, Spare
from libs.forecast.changes import Change, Kind
from libs.forecast.search import Option, options
from libs.kernel.ids import request_id
from libs.policies.table import POLICIES
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario
from libs.testing.effort import searching
from libs.testing.strategies import cells_with_guests, crowded_cells, scenarios
from services.roster import SERVICES


@st.composite
def cells(draw: st.DrawFn) -> Scenario:
    """Under every policy, with faults; the services have read everything, as a live `why` waits for."""
    policy = draw(st.sampled_from(tuple(POLICIES)))
    kinds = (scenarios(policy=policy), crowded_cells(policy=policy), cells_with_guests())
    return draw(st.one_of(*kinds)).options(interleaving=None)


@dataclass
class Cell:
    """A simulated cell, stopped where some job waits."""

    scenario: Scenario
    steps: int = 0
    simulation: Simulation = field(init=False)
    started: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.simulation = self.scenario.build(SERVICES)

    def go_on(self) -> bool:
        self.steps += 1
        goes_on = self.simulation.advance()
        self.simulation.dispatcher.settle()
        return goes_on

    def waiting(self) -> list[str]:
        lives = self.simulation.lives.jobs.values()
        return [life.job_id for life in lives if life.state is JobState.QUEUED and not life.books.is_placed]

    def again(self) -> Cell:
        """The same cell, at the same moment."""
        other = Cell(self.scenario)
        for _ in range(self.steps):
            other.go_on()
        return other

    def branch(self) -> Branch:
        return Branch(self.simulation.replicas, self.simulation.now_s)

    def sees(self, change: Change) -> bool:
        """Whether the agents of jobs that are to end are there: an end that none sees is told when it is back."""
        ended = [event for event in change.events if isinstance(event, JobExited)]
        return all(self.simulation.world.nodes[event.node_id].serves for event in ended)

    def happens(self, change: Change) -> None:
        """The change itself: processes end, a user or an operator asks, a server joins, time passes."""
        simulation = self.simulation
        if change.kind is Kind.END:
            for event in change.events:
                assert isinstance(event, JobExited)
                simulation.world.nodes[event.node_id].finish((event.job_id, event.attempt))
            facts = simulation.world.facts.fetch()
            for fact in facts:
                simulation.dispatcher.append(fact)
        elif change.until_s is not None:
            while (due := simulation.dispatcher.next_timer()) is not None and due[0] <= change.until_s:
                simulation.dispatcher.fire(due[1], due[0], max(due[0], simulation.now_s))
                simulation.dispatcher.settle()
        else:
            for event in change.events:
                envelope_id = request_id("test", f"{self.steps}/{simulation.log.end}")
                source, now_s = change.said_by, simulation.now_s
                simulation.dispatcher.append(Envelope(id=envelope_id, source=source, time_s=now_s, event=event))
        simulation.dispatcher.settle()

    def starts_after(self, option: Option, job_id: str) -> bool:
        before = self.simulation.log.end
        for change in option.changes:
            self.happens(change)
        expected = option.changes[-1].starts or job_id
        decided = [envelope.event for envelope in self.simulation.log.control[before:]]
        return any(
            (isinstance(event, JobPlaced) and event.job_id == expected)
            or (isinstance(event, TimeSliceStarted) and expected in [job.job_id for job in event.resumed])
            for event in decided
        )


TOLERATED = 100
"""One situation of so many, and one more, may have no answer: a job that admission would reject when it judges it."""


def test_the_job_starts_after_what_is_said():
    situations: list[str] = []
    wrong: list[str] = []
    unanswered: list[str] = []

    @searching(by_default=40, thorough=200)
    @given(st.data())
    def tried(data: st.DataObject) -> None:
        cell, after_s = Cell(data.draw(cells())), data.draw(st.integers(1, 500))
        while (cell.simulation.now_s < after_s or not cell.waiting()) and cell.go_on():
            pass
        assume(cell.waiting())
        job_id = data.draw(st.sampled_from(cell.waiting()))
        situations.append(job_id)
        found = options(Spare(cell.branch), job_id).options
        if not found:
            unanswered.append(f"nothing is said of {job_id} at {cell.simulation.now_s} s: {cell.scenario}")
            return
        option = data.draw(st.sampled_from([found[0], *found]))
        assume(all(cell.sees(change) for change in option.changes))
        if not cell.again().starts_after(option, job_id):
            wrong.append(f"{job_id} does not start: {option.message}: {cell.scenario}")

    tried()
    starting = len(situations) - len(wrong) - len(unanswered)
    print(f"{starting} of {len(situations)} jobs start after what is said; of {len(unanswered)} nothing is said")
    assert not wrong, "\n\n".join(wrong)
    assert len(unanswered) <= 1 + len(situations) // TOLERATED, "\n\n".join(unanswered)
