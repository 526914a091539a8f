"""State is the fold of what is recorded: at every offset, under every policy, whatever goes wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libs.inspect.refolding import Joined
from libs.inspect.replay import refold
from libs.kernel.replica import Replica
from libs.policies.table import POLICIES
from libs.sim.simulation import Simulation
from libs.testing.builders import Scenario
from libs.testing.strategies import crowded_cells, scenarios
from services.roster import SERVICES
from tests.properties.effort import few_examples, whole_system

any_policy = st.sampled_from(tuple(POLICIES)).flatmap(
    lambda policy: st.one_of(scenarios(policy=policy), crowded_cells(policy=policy))
)


def states_on_the_way(scenario: Scenario) -> tuple[Simulation, dict[str, dict[int, bytes]]]:
    """A run, and {service: {offset: its state after the input there}}: what a process has in its memory."""
    simulation = scenario.build(SERVICES)
    lived: dict[str, dict[int, bytes]] = {service.name: {} for service in SERVICES}
    for name, replica in simulation.replicas.items():
        watch(replica, lived[name])
    simulation.run()
    return simulation, lived


def watch(replica: Replica, lived: dict[int, bytes]) -> None:
    handle = replica.handle

    def watched(envelope):
        outputs = handle(envelope)
        lived[len(lived)] = replica.state_bytes
        return outputs

    replica.handle = watched  # type: ignore[method-assign]


@whole_system
@given(any_policy)
def test_at_every_offset_the_refolded_state_is_the_live_one(scenario: Scenario):
    simulation, lived = states_on_the_way(scenario)
    for service in SERVICES:
        folded = Replica(service)
        count = 0
        for handled in joined(simulation, folded):
            folded.refold(handled.input, handled.outputs)
            assert folded.state_bytes == lived[service.name][count], f"{service.name} after {handled.input}"
            count += 1
        assert count == len(lived[service.name])
        assert folded.decided == simulation.replicas[service.name].decided
        assert folded.timers == simulation.replicas[service.name].timers


def joined(simulation: Simulation, replica: Replica):
    waiting = Joined()
    for record in simulation.records():
        if replica.is_own(record.envelope) and waiting.expects(record.envelope.causation_id):
            yield from waiting.output(record.envelope)
        if replica.service.machine.reads(record.envelope.event):
            waiting.input(record.envelope, record.offset)
    yield from waiting.complete(simulation.log.end)


@few_examples
@given(any_policy, st.data())
def test_a_log_that_was_cut_anywhere_is_folded_to_the_state_before_the_cut(scenario: Scenario, data: st.DataObject):
    """Of what had been handled: decisions and position are committed together."""
    simulation, lived = states_on_the_way(scenario)
    records = list(simulation.records())
    cut = data.draw(st.integers(0, len(records)), label="cut")
    for name, replica in refold(records, SERVICES, until_offset=cut).items():
        read = sum(1 for record in records[:cut] if replica.service.machine.reads(record.envelope.event))
        expected = lived[name][read - 1] if read else Replica(replica.service).state_bytes
        assert replica.state_bytes == expected, name
