"""The log on Apache Kafka, through aiokafka."""

from libs.bus.kafka.bus import KafkaBus

__all__ = ["KafkaBus"]
