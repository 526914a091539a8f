"""Warnings that are looked up once for many submissions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from libs.testing.core_case import arrival
from services.gateway.adapters import notices as notices_module
from services.gateway.adapters.database import Database, ReadModelsAway
from services.gateway.adapters.notices import Notices


class Counted:
    """Read models that are asked, or that are away."""

    def __init__(self) -> None:
        self.reads, self.is_away = 0, False

    async def read(self, query: Callable[..., Any]) -> list[str]:
        self.reads += 1
        if self.is_away:
            raise ReadModelsAway("not there")
        return [f"look {self.reads}"]


@pytest.fixture
def database() -> Counted:
    return Counted()


@pytest.fixture
def notices(database: Counted) -> Notices:
    return Notices(cast(Database, database), lambda: 0.0)


async def test_submissions_of_one_user_are_answered_by_one_look(
    notices: Notices, database: Counted, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notices_module, "KNOWN_S", 3600.0)
    same, other = arrival("j", 1, user="eva").spec, arrival("k", 1, user="bob").spec
    assert await asyncio.gather(*(notices.of(same) for _ in range(3))) == [["look 1"]] * 3
    assert await notices.of(other) == ["look 2"]
    assert await notices.of(arrival("l", 1, user="eva", data=["mnist"]).spec) == ["look 3"]


async def test_an_answer_is_given_again_for_a_short_time_only(
    notices: Notices, database: Counted, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notices_module, "KNOWN_S", -1.0)
    spec = arrival("j", 1).spec
    assert [await notices.of(spec), await notices.of(spec)] == [["look 1"], ["look 2"]]


async def test_no_submission_waits_for_read_models_that_are_away(notices: Notices, database: Counted):
    database.is_away = True
    assert await notices.of(arrival("j", 1).spec) == []
