"""An agent's bus through the gateway: what its token is for, what happens when the network fails, which certificate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
import yaml
from torch_agent.options import parse
from torch_agent.reaching import connected

from libs.bus import codec
from libs.bus.embedded import EmbeddedBus
from libs.bus.http.bus import HttpBus
from libs.bus.http.protocol import MEDIA_TYPE, ROOT
from libs.bus.http.token import JoinToken, fingerprint_of, pinned
from libs.bus.partitioner import partition_index
from libs.bus.port import BusError, BusUnavailable, Fenced, Outgoing, Partition, Position, Refused, TopicLayout
from libs.cli.cell.joining import Joining
from libs.contracts.agent import NodeLeft
from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope
from libs.contracts.placement import JobSucceeded, StopTask
from libs.contracts.reasons import Reason
from libs.kernel.ids import request_id
from libs.node.serving import node_key
from libs.runtime.cell_key import ensure_key, read_key
from libs.testing.bus_contract.log import until_end
from libs.testing.proxy import Proxy
from libs.testing.served import served
from services.gateway.adapters.tokens import Tokens
from services.gateway.api.guard import ByTls
from services.gateway.app import create_app
from services.gateway.door import Gateway
from tests.integration.gateway_cell import CONTROL, memory_bus, settings

SECRET = "the-secret-of-n1-and-n2"
ADMIN = "the-secret-of-the-admin"


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EmbeddedBus]:
    """The log itself."""
    bus = await EmbeddedBus.connect(f"sqlite:///{tmp_path / 'log.db'}", "lab")
    await bus.create_topics(TopicLayout())
    yield bus
    await bus.close()


def gateway_over(bus: EmbeddedBus, folder: Path, **fields: object) -> Gateway:
    file = folder / "tokens.yaml"
    entries = [
        {"name": "rack", "token": SECRET, "scopes": ["agent"], "nodes": ["n*", "!n9"]},
        {"name": "ada", "token": ADMIN, "scopes": ["admin"]},
        {"name": "rita", "token": "the-reader's-token", "scopes": ["read"]},
    ]
    file.write_text(yaml.safe_dump({"tokens": entries}))
    return Gateway(settings(folder, **fields), bus, tokens=Tokens.read(file))


@pytest.fixture
async def url(log: EmbeddedBus, tmp_path: Path) -> AsyncIterator[str]:
    """A gateway's."""
    async with served(create_app(gateway_over(log, tmp_path))) as url:
        yield url


@pytest.fixture
async def agent(url: str) -> AsyncIterator[HttpBus]:
    """The bus of an agent that has joined."""
    bus = await HttpBus.connect(url, "lab", SECRET)
    yield bus
    await bus.close()


@pytest.fixture
def network(url: str) -> Iterator[Proxy]:
    """What lies between an agent and the gateway."""
    with Proxy(urlsplit(url).port or 0) as proxy:
        yield proxy


def fact(event: Event, source: str, number: int = 1) -> Outgoing:
    return codec.outgoing(
        Envelope(id=request_id(source, str(number)), source=source, time_s=1.0, event=event, sequence=number)
    )


def left(node_id: str = "n1", incarnation: int = 1) -> Outgoing:
    return fact(NodeLeft(node_id=node_id, incarnation=incarnation), f"agent/{node_id}", incarnation)


def order(node_id: str) -> Outgoing:
    reason = Reason(code="Cancelled", message="by its user")
    return fact(StopTask(node_id=node_id, job_id="j", attempt=1, grace_s=1.0, reason=reason), "placement")


def orders_of(node_id: str) -> Partition:
    return Partition(Topic.ORDERS, partition_index(node_id, TopicLayout().partitions[Topic.ORDERS]))


async def ids(bus: EmbeddedBus) -> list[str]:
    return [codec.message_id(message) for message in await until_end(bus, CONTROL)]


async def test_an_agent_sees_the_orders_of_its_nodes_and_how_far_the_others_have_come(
    log: EmbeddedBus, agent: HttpBus
) -> None:
    partition = orders_of("n1")
    neighbour = next(name for name in (f"m{number}" for number in range(100)) if orders_of(name) == partition)
    await log.append([order("n1"), order(neighbour), order("n1"), order(neighbour), order(neighbour)])
    found = await until_end(agent, partition)  # type: ignore[arg-type]
    assert [(message.key, message.offset) for message in found] == [("n1", 0), ("n1", 2), ("", 4)]
    assert (found[-1].headers, found[-1].value) == ([], b"")


async def test_an_agent_learns_how_far_placement_has_come_and_of_no_other_service(
    log: EmbeddedBus, agent: HttpBus
) -> None:
    session = await log.open_session("placement")
    await session.commit([left("n1")], {CONTROL: Position(7)})
    assert (await agent.committed("placement", CONTROL)).next_offset == 7
    with pytest.raises(Refused, match="session 'quota' is not an agent's"):
        await agent.committed("quota", CONTROL)


async def test_an_agent_gets_the_lease_of_the_cell(log: EmbeddedBus, tmp_path: Path) -> None:
    gateway = gateway_over(log, tmp_path, node_timeout_s=40.0, lease_margin_s=5.0)
    async with served(create_app(gateway)) as url:
        bus = await HttpBus.connect(url, "lab", SECRET)
        assert await bus.lease() == (40.0, 5.0)
        await bus.close()


async def test_an_agent_with_tasks_waits_until_its_token_is_taken(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, stop = tmp_path / "token", asyncio.Event()
    file.write_text("not known here")
    options = parse(["--join", url, "--cell", "lab", "--token-file", str(file), "--state-dir", str(tmp_path / "n1")])
    with pytest.raises(Refused):
        await connected(options, stop, patient=False)
    waiting = asyncio.create_task(connected(options, stop, patient=True))
    async with asyncio.timeout(30):
        while "This agent goes on trying" not in caplog.text:
            await asyncio.sleep(0.01)
        file.write_text(SECRET)
        bus = await waiting
    assert isinstance(bus, HttpBus)
    await bus.append([])
    await bus.close()


async def test_an_agent_goes_on_with_another_token(url: str) -> None:
    bus = await HttpBus.connect(url, "lab", SECRET)
    bus.use_token("not known here")
    with pytest.raises(Refused):
        await bus.append([])
    bus.use_token(SECRET)
    await bus.append([])
    await bus.close()


async def test_of_control_an_agent_sees_what_its_nodes_have_said(log: EmbeddedBus, agent: HttpBus) -> None:
    await log.append([left("n1"), fact(JobSucceeded(job_id="j", attempt=1), "placement"), left("n9"), left("n2")])
    found = await until_end(agent, CONTROL)  # type: ignore[arg-type]
    assert [message.key for message in found] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("session", "output", "why"),
    [
        ("agent/n1", fact(JobSucceeded(job_id="j", attempt=1), "agent/n1"), "said by placement, not by an agent"),
        ("agent/n1", left("n9"), "is not for node 'n9'"),
        ("agent/n1", left("n2"), "expected agent/n2 as source and session"),
        ("agent/n1", fact(NodeLeft(node_id="n1", incarnation=1), "placement"), "expected agent/n1 as source"),
        ("agent/n1", Outgoing(Topic.ORDERS, "n1", left().headers, left().value), "expected on control with key 'n1'"),
        ("agent/n1", Outgoing(Topic.CONTROL, "n2", left().headers, left().value), "expected on control with key 'n1'"),
        ("agent/n1", Outgoing(Topic.CONTROL, "n1", [], b"{}"), "no fact that this gateway knows"),
        ("agent/n9", left("n9"), "is not for node 'n9'"),
        ("placement", left(), "session 'placement' is not an agent's"),
    ],
)
async def test_what_is_not_the_nodes_is_refused(
    log: EmbeddedBus, agent: HttpBus, session: str, output: Outgoing, why: str
) -> None:
    with pytest.raises(Refused, match=why):
        await (await agent.open_session(session)).commit([left(), output])
    if session == "agent/n1" and "session" not in why:
        with pytest.raises(Refused, match=why):
            await agent.append([output])
    assert await log.end_offset(CONTROL) == 0


async def test_other_tokens_are_refused(url: str) -> None:
    for token in ("the-reader's-token", "unknown"):
        with pytest.raises(Refused):
            await HttpBus.connect(url, "lab", token)
    with pytest.raises(BusError, match="has the cell 'lab', expected 'field'"):
        await HttpBus.connect(url, "field", SECRET)
    with pytest.raises(Refused, match="is not for node 'm1'"):
        bus = await HttpBus.connect(url, "lab", SECRET)
        await bus.node_key("m1")


async def test_a_gateway_over_a_log_that_serves_agents_itself_says_so(tmp_path: Path) -> None:
    async with served(create_app(gateway_over(await memory_bus(), tmp_path))) as url:  # type: ignore[arg-type]
        bus = await HttpBus.connect(url, "lab", SECRET)
        with pytest.raises(BusError, match="join it by --bus"):
            await bus.open_session("agent/n1")
        await bus.close()


async def test_the_join_hands_over_the_secret_of_the_node_alone(log: EmbeddedBus, tmp_path: Path) -> None:
    key_file = tmp_path / "cell.key"
    ensure_key(key_file)
    async with served(create_app(gateway_over(log, tmp_path, cell_key_file=key_file))) as url:
        bus = await HttpBus.connect(url, "lab", SECRET)
        key = await bus.node_key("n1")
        await bus.close()
    assert key == node_key(read_key(key_file), "n1") != node_key(read_key(key_file), "n2")


async def test_a_commit_whose_answers_are_lost_happens_once(
    log: EmbeddedBus, network: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "libs.bus.http")
    bus = await HttpBus.connect(f"http://127.0.0.1:{network.port}", "lab", SECRET)
    session = await bus.open_session("agent/n1")
    network.lose_answers(3)
    offsets = await session.commit([left()], {orders_of("n1"): Position(7, "note")})
    assert network.lost.is_set()
    assert offsets == [0]
    assert await session.commit([left(incarnation=2)]) == [1]
    assert len(await ids(log)) == 2
    assert await session.position(orders_of("n1")) == Position(7, "note")
    said = [record.message for record in caplog.records if record.name.startswith("libs.bus.http")]
    url = f"http://127.0.0.1:{network.port}"
    assert [line.split(url)[0] for line in said] == ["waiting for the gateway at ", "the gateway at "]
    await bus.close()


async def test_a_cut_is_waited_for_and_reading_goes_on_without_a_gap(log: EmbeddedBus, network: Proxy) -> None:
    bus = await HttpBus.connect(f"http://127.0.0.1:{network.port}", "lab", SECRET)
    session = await bus.open_session("agent/n1")
    reader = await bus.reader({orders_of("n1"): 0})
    waiting = asyncio.create_task(reader.next_batch(10, 100.0))
    network.cut()
    with pytest.raises(BusUnavailable):
        await waiting
    with pytest.raises(BusUnavailable, match=str(network.port)):
        await reader.next_batch(10, 0.0)
    await log.append([order("n1"), order("n1")])
    network.mend()
    found: list[int] = []
    while len(found) < 2:
        try:
            found += [message.offset for message in await reader.next_batch(1, 100.0)]
        except BusUnavailable:
            continue
    assert found == [0, 1]
    await session.commit([left()])
    assert len(await ids(log)) == 1
    await bus.close()


async def test_a_gateway_that_is_replaced_knows_the_holder_and_its_last_commit(
    log: EmbeddedBus, tmp_path: Path
) -> None:
    with Proxy(0) as network:
        async with served(create_app(gateway_over(log, tmp_path))) as url:
            network.leads_to(urlsplit(url).port or 0)
            older = await HttpBus.connect(f"http://127.0.0.1:{network.port}", "lab", SECRET)
            newer = await HttpBus.connect(f"http://127.0.0.1:{network.port}", "lab", SECRET)
            zombie = await older.open_session("agent/n1")
            session = await newer.open_session("agent/n1")
            network.lose_answers(1)
            committing = asyncio.create_task(session.commit([left()]))
            await asyncio.to_thread(network.lost.wait)
            network.cut()
        async with served(create_app(gateway_over(log, tmp_path))) as url:
            network.leads_to(urlsplit(url).port or 0)
            network.mend()
            assert await committing == [0]
            with pytest.raises(Fenced):
                while True:
                    try:
                        await zombie.commit([left(incarnation=99)])
                    except BusUnavailable:
                        continue
            await session.commit([left(incarnation=2)])
            assert len(await ids(log)) == 2
            for bus in (older, newer):
                await bus.close()


async def test_a_certificate_is_pinned_and_a_token_is_needed_by_tls(log: EmbeddedBus, tmp_path: Path) -> None:
    joining, other = (Joining(tmp_path / name, "lab", "127.0.0.2", 8420, ("n1",)) for name in ("one", "other"))
    for each in (joining, other):
        each.state_dir.mkdir()
    token = joining.prepare()
    gateway = Gateway(settings(tmp_path), log, agent_tokens=Tokens.read(joining.tokens_file))
    files = {"ssl_certfile": joining.certificate, "ssl_keyfile": joining.key}
    async with served(ByTls(create_app(gateway)), **files) as url:
        bus = await HttpBus.connect(url, "lab", str(token))
        await bus.open_session("agent/far")
        with pytest.raises(Refused, match="is not for node 'n1'"):
            await bus.open_session("agent/n1")
        await bus.close()
        with pytest.raises(Refused, match="the token was not sent"):
            await HttpBus.connect(url, "lab", str(other.prepare()))
        with pytest.raises(Refused, match="not known here"):
            await HttpBus.connect(url, "lab", str(JoinToken.new(token.fingerprint)))
        verified = await asyncio.to_thread(pinned, url, token.fingerprint)
        async with httpx2.AsyncClient(base_url=url, verify=verified) as client:
            assert (await client.get("/v1/jobs")).status_code == 401
            joined = {"Authorization": f"Bearer {token.secret}"}
            assert (await client.get("/v1/jobs", headers=joined)).status_code == 403
            code = await client.get(f"/v1/code/c-{'a' * 32}", headers=joined)
            assert (code.status_code, code.json()["title"]) == (404, "There is no such thing")
    assert joining.prepare() == token, "a token stays good over restarts"
    assert fingerprint_of(joining.certificate.read_text()) == token.fingerprint


@pytest.mark.parametrize(
    ("path", "body", "media_type", "status"),
    [
        ("commit", msgspec.msgpack.encode({"session": "agent/n1"}), MEDIA_TYPE, 422),
        ("commit", b"\xc1", MEDIA_TYPE, 400),
        ("commit", b"", MEDIA_TYPE, 400),
        ("commit", b"{}", "application/json", 415),
        ("read", msgspec.msgpack.encode({"starts": [], "max_messages": 1, "timeout_s": "soon"}), MEDIA_TYPE, 422),
        ("topic", msgspec.msgpack.encode({"topic": "placement"}), MEDIA_TYPE, 422),
        ("extent", msgspec.msgpack.encode({"partition": {"topic": "control", "index": 7}}), MEDIA_TYPE, 422),
    ],
)
async def test_what_is_no_question_is_a_problem(url: str, path: str, body: bytes, media_type: str, status: int) -> None:
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {SECRET}"}) as client:
        answer = await client.post(f"{ROOT}/{path}", content=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
