"""A one-node Apache Kafka (KRaft) from Maven Central, for tests and the demonstration. Needs Java 17 and, once, Maven.

The version is set in pom.xml: Kafka 4.2.2, with which aiokafka 0.14 passed all of these: transactions with offsets for
a group without members, read_committed, fencing by transactional id, topic creation with configs, 5 MiB records, offset
listing. It is not the newest: 4.3.0 to 4.4.0 can lose a transaction that they have acknowledged (infra/decisions/0016).
"""

from libs.bus.local_broker.broker import LocalBroker
from libs.bus.local_broker.errors import LocalBrokerError
from libs.bus.local_broker.jars import default_cache_dir, fetch_jars, kafka_version

__all__ = ["LocalBroker", "LocalBrokerError", "default_cache_dir", "fetch_jars", "kafka_version"]
