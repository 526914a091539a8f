"""The local broker as a process: its life, its death, and what it says when it cannot live."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from libs.bus.local_broker import LocalBroker, LocalBrokerError, fetch_jars
from libs.bus.local_broker.network import serves

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """Started by a thread that has ended."""
    broker = LocalBroker(tmp_path_factory.mktemp("shared") / "broker")
    asyncio.run(asyncio.to_thread(broker.start))  # ends the event loop's threads as well
    yield broker
    broker.stop()


@pytest.fixture
def broker(shared: LocalBroker) -> LocalBroker:
    """It runs, whatever the test before has done to it."""
    if not serves(shared.port):
        shared.kill()
        shared.start()
    return shared


@pytest.fixture
def topic() -> TopicPartition:
    """The test's own."""
    return TopicPartition(f"kept-{uuid.uuid4().hex}", 0)


def test_it_outlives_the_thread_that_started_it(shared: LocalBroker) -> None:
    shared.check()
    assert serves(shared.port)


@pytest.mark.asyncio
@pytest.mark.parametrize("end", [LocalBroker.stop, LocalBroker.kill], ids=["stop", "kill"])
async def test_a_restart_continues_on_the_same_port_and_data(
    broker: LocalBroker, topic: TopicPartition, end: Callable[[LocalBroker], None]
) -> None:
    address = broker.bootstrap
    await _create_topic(address, topic)
    await _commit_record(address, topic, b"before")
    await asyncio.to_thread(end, broker)
    assert not serves(broker.port)

    await asyncio.to_thread(broker.start)

    assert broker.bootstrap == address
    await _commit_record(address, topic, b"after")
    assert await _committed_values(address, topic, 2) == [b"before", b"after"]


@pytest.mark.asyncio
async def test_a_producer_continues_across_a_crash_of_the_broker(broker: LocalBroker, topic: TopicPartition) -> None:
    await _create_topic(broker.bootstrap, topic)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="steady") as producer:
        async with producer.transaction():
            await producer.send(topic.topic, b"before")
        await asyncio.to_thread(broker.kill)
        restart = asyncio.create_task(asyncio.to_thread(broker.start))
        async with producer.transaction():
            await producer.send(topic.topic, b"after")
        await restart
    assert await _committed_values(broker.bootstrap, topic, 2) == [b"before", b"after"]


def test_stop_and_kill_are_harmless_when_it_does_not_run(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path)
    broker.stop()
    broker.kill()
    assert broker.pid is None


def test_check_tells_of_a_broker_that_died(broker: LocalBroker) -> None:
    broker.check()
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    with pytest.raises(LocalBrokerError, match=r"ended with status -9\nthe end of .*broker\.log"):
        for _ in range(100):
            broker.check()
            time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a child's life to its parent's")
def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    with _running_command(tmp_path / "broker") as command:
        port = _printed_port(command)
        command.kill()
        command.wait()
        _wait_until(lambda: not serves(port))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_runs_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with _running_command(tmp_path / "broker") as command:
        port = _printed_port(command)
        assert serves(port)
        command.send_signal(number)
        assert command.wait() == 0
        assert not serves(port)


def test_a_port_in_use_is_refused(broker: LocalBroker, tmp_path: Path) -> None:
    with pytest.raises(LocalBrokerError, match=f"port {broker.port} is in use"):
        LocalBroker(tmp_path / "other", port=broker.port).start()


def test_a_broker_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    data_of_another = tmp_path / "log"
    data_of_another.mkdir()
    (data_of_another / "meta.properties").write_text("version=1\nnode.id=99\ncluster.id=another\n")
    broker = LocalBroker(tmp_path)
    with pytest.raises(LocalBrokerError, match=r"(?s)ended with status 1.*node"):
        broker.start()
    assert broker.pid is None


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalBrokerError, match="no java in JAVA_HOME"):
        LocalBroker(tmp_path).start()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16-ea"])
def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    _script(tmp_path / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalBrokerError, match=f"Java {version} .* is too old"):
        LocalBroker(tmp_path).start()


def test_a_missing_maven_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalBrokerError, match="no mvn on the PATH"):
        fetch_jars(tmp_path)


def test_a_failing_maven_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_maven(tmp_path, monkeypatch, "touch $libs/half.jar; echo out of reach; exit 1")
    with pytest.raises(LocalBrokerError, match=r"(?s)status 1.*out of reach"):
        fetch_jars(tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_jars_are_fetched_once_when_several_ask_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_maven(tmp_path, monkeypatch, f"sleep 0.2; echo called >> {tmp_path}/calls; touch $libs/kafka.jar")
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(fetch_jars, [tmp_path / "cache"] * 4))
    assert [sorted(path.name for path in folder.iterdir()) for folder in folders] == [["kafka.jar"]]
    assert (tmp_path / "calls").read_text() == "called\n"


def test_the_fixture_fails_when_there_is_no_broker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        'pytest_plugins = ("libs.testing.kafka",)\ndef test_it(kafka_bootstrap): pass\n'
    )
    changes = {"JAVA_HOME": str(tmp_path), "KAFKA_BOOTSTRAP_SERVERS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, **changes}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1 error" in done.stdout


async def _create_topic(address: str, topic: TopicPartition) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(topic.topic, 1, 1)])
    await admin.close()


async def _commit_record(address: str, topic: TopicPartition, value: bytes) -> None:
    async with (
        AIOKafkaProducer(bootstrap_servers=address, transactional_id="writer") as producer,
        producer.transaction(),
    ):
        await producer.send(topic.topic, value)


async def _committed_values(address: str, topic: TopicPartition, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=address, isolation_level="read_committed")
    async with consumer:
        consumer.assign([topic])
        consumer.seek(topic, 0)
        return [(await asyncio.wait_for(consumer.getone(), 120)).value for _ in range(count)]


@contextmanager
def _running_command(data: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "libs.bus.local_broker", "run", "--data", str(data)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # or leaving the block would wait for ever when an assertion failed


def _printed_port(command: subprocess.Popen[str]) -> int:
    assert command.stdout is not None
    return int(command.stdout.readline().rpartition(":")[2])


def _fake_maven(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    find_target = 'for word; do libs=${word#-Dlibs.directory=}; done; mkdir -p "$libs"'
    _script(folder / "bin" / "mvn", f"{find_target}\n{body}")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def _script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _wait_until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.05)
