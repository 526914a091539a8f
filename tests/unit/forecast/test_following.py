"""Cores that follow the log are those of the services, and their branches change nothing."""

from __future__ import annotations

import msgspec

from libs.forecast.branch import CORES
from libs.forecast.following import Followed
from libs.kernel.replica import Replica, pass_over
from services.roster import SERVICES
from tests.unit.forecast.crowded_cell import stopped_at


def followed() -> tuple[Followed, dict[str, Replica[object]]]:
    replicas = {service.name: Replica(service, pass_over) for service in SERVICES if service.name in CORES}
    return Followed(replicas), replicas


def test_the_states_are_those_of_the_services():
    simulation, (cores, replicas) = stopped_at(60.0), followed()
    for record in simulation.records():
        cores.take(record)
    cores.handled(dict.fromkeys(CORES, simulation.log.end))
    assert cores.next_offset == simulation.log.end
    for name in CORES:
        assert replicas[name].state_bytes == simulation.replicas[name].state_bytes


def test_what_is_not_known_to_be_handled_is_decided_on_the_branch_alone():
    simulation, (cores, replicas) = stopped_at(60.0), followed()
    for record in simulation.records():
        cores.take(record)
    before = {name: replica.state_bytes for name, replica in replicas.items()}
    assert before["placement"] != simulation.replicas["placement"].state_bytes
    branch = cores.branches(simulation.now_s)()
    for name in CORES:
        expected = msgspec.json.decode(simulation.replicas[name].state_bytes)
        assert msgspec.json.decode(branch.replicas[name].state_bytes) == expected, name
    assert {name: replica.state_bytes for name, replica in replicas.items()} == before


def test_a_record_before_the_position_of_a_core_is_not_taken_twice():
    simulation, (cores, replicas) = stopped_at(60.0), followed()
    records = list(simulation.records())
    # Where a fact from outside stands everything before it has been handled, with all decisions behind it.
    half = next(at for at in range(len(records) // 2, len(records)) if not records[at].envelope.causation_id)
    for record in records[:half]:
        cores.take(record)
    cores.handled(dict.fromkeys(CORES, half))
    for replica in replicas.values():
        replica.next_offset = half
    again = Followed(replicas)
    assert again.next_offset == half
    for record in records[half:]:
        again.take(record)
    again.handled(dict.fromkeys(CORES, len(records)))
    for name in CORES:
        assert replicas[name].state_bytes == simulation.replicas[name].state_bytes
