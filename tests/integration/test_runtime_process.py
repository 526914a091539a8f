"""`python -m libs.runtime` as a process of its own, on the embedded log and on Kafka."""

import asyncio
import json
import signal
import urllib.request
import uuid
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.bus import codec
from libs.bus.connect import connect
from libs.bus.local_broker.network import free_port
from libs.bus.port import Bus, Outgoing, TopicLayout
from libs.contracts.base import Topic
from libs.contracts.envelope import Envelope
from libs.testing.core_case import arrival, node
from libs.testing.processes import Processes, give, live, until
from libs.testing.shells import messages, replayed
from libs.testing.thorough import often
from services.admission.service import SERVICE as ADMISSION

pytest_plugins = ("libs.testing.kafka",)

ROUNDS, JOBS = often(2, thorough=4), 150


@pytest.fixture(params=["embedded", "kafka"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return f"sqlite:///{tmp_path}/log.db"
    return f"kafka://{request.getfixturevalue('kafka_bootstrap')}"


@pytest.fixture
def cell() -> str:
    return f"runtime-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def bus(url: str, cell: str) -> AsyncIterator[Bus]:
    bus = await connect(url, cell)
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()


@pytest.fixture
async def processes(url: str, cell: str, tmp_path: Path) -> AsyncIterator[Processes]:
    environment = {"SANJAYA_BUS": url, "SANJAYA_CELL": cell, "SANJAYA_STATE_DIR": str(tmp_path)}
    processes = Processes({**environment, "SANJAYA_METRICS_PORT": "0"})
    yield processes
    await processes.kill_all()


async def control(bus: Bus) -> list[Envelope]:
    return [codec.record(message).envelope for message in await messages(bus, Topic.CONTROL)]


async def decided(bus: Bus, number: int) -> None:
    """Wait until admission has decided so often."""

    async def enough() -> bool:
        return sum(1 for envelope in await control(bus) if envelope.source == "admission") >= number

    await until(enough)


async def ended_in_order(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    _, said = await process.communicate()
    assert process.returncode == 0, said


@pytest.mark.thorough
async def test_kill_9_again_and_again_changes_nothing(bus: Bus, processes: Processes):
    await give(bus, 0, [node("n1", 4)])
    often = {"SANJAYA_SNAPSHOT_EVERY_RECORDS": "40", "SANJAYA_BATCH_RECORDS": "10"}
    for number in range(ROUNDS):
        process = await processes.start("libs.runtime", "admission", **often)
        await give(bus, 1000 * (number + 1), [arrival(f"j{number}-{job}") for job in range(JOBS)])
        await decided(bus, number * JOBS + 1)
        process.kill()
        await process.wait()
    process = await processes.start("libs.runtime", "admission")
    await live(process)
    await decided(bus, ROUNDS * JOBS)
    await ended_in_order(process)
    log = await control(bus)
    assert len(log) == 2 + 2 * ROUNDS * JOBS, "a node and the epoch, and of each job its arrival and the verdict"
    assert len({envelope.id for envelope in log}) == len(log)
    causes = [envelope.causation_id for envelope in log if envelope.source == "admission"]
    assert sorted(causes) == sorted(e.id for e in log if e.event.wire_type == "job.arrived.v1")
    await replayed(ADMISSION, bus)


async def test_a_bad_record_ends_the_process_with_its_own_exit_code(bus: Bus, processes: Processes):
    await bus.append([Outgoing(Topic.CONTROL, "x", [], b"not an event")])
    process = await processes.start("libs.runtime", "quota")
    _, said = await process.communicate()
    assert process.returncode == 70
    assert b"control/0@0" in said
    assert b"header 'ce_type' is missing" in said


async def test_a_second_instance_ends_the_first_with_its_own_exit_code(bus: Bus, processes: Processes):
    first = await processes.start("libs.runtime", "admission")
    await give(bus, 0, [node("n1", 4), arrival("a")])
    await decided(bus, 1)
    second = await processes.start("libs.runtime", "admission")
    await live(second)
    await give(bus, 10, [arrival("b")])
    _, said = await first.communicate()
    assert first.returncode == 75
    assert b"a newer instance has taken over" in said
    await decided(bus, 2)
    await ended_in_order(second)
    assert len(await control(bus)) == 6, "a node, two arrivals with their verdicts, and one epoch"


@pytest.mark.parametrize("url", ["embedded"], indirect=True)
async def test_metrics_and_health_are_served(bus: Bus, processes: Processes):
    port = free_port()
    process = await processes.start("libs.runtime", "admission", SANJAYA_METRICS_PORT=str(port))
    await give(bus, 0, [node("n1", 4), arrival("a")])
    await decided(bus, 1)

    def fetch(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    async def told() -> bool:
        return 'sanjaya_decisions_total{service="admission"} 1.0' in await asyncio.to_thread(fetch, "/metrics")

    await until(told)
    assert json.loads(await asyncio.to_thread(fetch, "/healthz"))["healthy"] is True
    await ended_in_order(process)


@pytest.mark.parametrize("url", ["embedded"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "environment", "code", "said"),
    [
        (["nonsense"], {}, 64, b"no service 'nonsense'"),
        ([], {}, 64, b"usage: python -m libs.runtime SERVICE"),
        (["quota"], {"SANJAYA_CELL": "A B"}, 78, b"error: setting cell: "),
    ],
)
async def test_wrong_use_is_refused(
    processes: Processes, arguments: list[str], environment: dict[str, str], code: int, said: bytes
):
    process = await processes.start("libs.runtime", *arguments, **environment)
    _, text = await process.communicate()
    assert process.returncode == code
    assert said in text
