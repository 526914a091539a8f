"""A position is read as the group's coordinator has it, never from a coordinator that has not read it yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, GroupCoordinatorNotAvailableError
from aiokafka.structs import OffsetAndMetadata

from libs.bus.kafka import positions

PLACE = TopicPartition("cell.control", 0)
Answer = Mapping[TopicPartition, OffsetAndMetadata] | Exception


class Coordinator:
    """Gives its answers in turn."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    async def list_consumer_group_offsets(self, group: str, partitions: list[TopicPartition]) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "COORDINATOR_BACKOFF_S", 0.0)


async def asked(*answers: Answer) -> OffsetAndMetadata:
    return await positions.offset(Coordinator(*answers), "cell.admission", PLACE)


async def test_an_answer_without_the_partition_is_no_answer():
    kept = OffsetAndMetadata(41, "note")
    assert await asked(GroupCoordinatorNotAvailableError(), {}, {}, {PLACE: kept}) == kept


async def test_a_group_without_an_offset_is_told_from_one_that_is_not_loaded():
    assert (await asked({}, {PLACE: OffsetAndMetadata(-1, "")})).offset == -1


async def test_what_asking_again_cannot_mend_is_raised():
    with pytest.raises(GroupAuthorizationFailedError):
        await asked(GroupAuthorizationFailedError())
