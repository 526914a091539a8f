"""Where a partition ends, in messages: the broker counts transaction markers as offsets too."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition


async def after_last_message(consumer: AIOKafkaConsumer, place: TopicPartition) -> int:
    """The offset after the last committed message, 0 when there is none.

    The broker's end (of what is committed) may lie behind markers, so the last message is looked for
    backwards, in windows of doubling size.
    """
    end: int = (await consumer.end_offsets([place]))[place]
    begin: int = (await consumer.beginning_offsets([place]))[place]
    window = 4
    while end > begin:
        start = max(begin, end - window)
        last = await _last_between(consumer, place, start, end)
        if last is not None:
            return last + 1
        if start == begin:
            break
        window *= 4
    return begin


async def _last_between(consumer: AIOKafkaConsumer, place: TopicPartition, start: int, end: int) -> int | None:
    consumer.assign([place])
    consumer.seek(place, start)
    last: int | None = None
    while await consumer.position(place) < end:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            last = records[-1].offset
    return last
