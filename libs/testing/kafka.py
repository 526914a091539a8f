"""A Kafka for tests. Name this module in `pytest_plugins` to have the fixture."""

import os
from collections.abc import Iterator

import pytest

from libs.bus.local_broker import LocalBroker


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker: `KAFKA_BOOTSTRAP_SERVERS` if set, else of one that is started once for the session.

    A broker that cannot be started is an error and never a skip: a run without Kafka would look like a run that
    passed. Tests share the broker, so they choose topic, group and transactional ids of their own.
    """
    if address := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield address
        return
    with LocalBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap
