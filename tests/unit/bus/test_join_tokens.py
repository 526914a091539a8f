"""The text of a join token, and the patience of an agent's bus with a gateway that is away."""

from __future__ import annotations

import asyncio
import logging

import pytest

from libs.bus.http.connection import FIRST_PAUSE_S, LONGEST_PAUSE_S, Pauses
from libs.bus.http.token import JoinToken
from libs.bus.port import BusError

FINGERPRINT = "0123456789abcdef" * 4


def test_a_join_token_has_a_secret_and_a_certificate() -> None:
    token = JoinToken.new(FINGERPRINT)
    assert JoinToken.parse(f" {token}\n") == token
    assert token.fingerprint == FINGERPRINT
    assert FINGERPRINT not in token.secret
    assert JoinToken.new(FINGERPRINT).secret != token.secret


def test_any_other_token_is_sent_as_it_is() -> None:
    assert JoinToken.parse("the-admin's-token") == JoinToken("the-admin's-token")
    assert str(JoinToken("the-admin's-token")) == "the-admin's-token"


@pytest.mark.parametrize("cut", [-1, -32, -64, -66])
def test_a_token_that_is_cut_short_is_not_taken_for_another(cut: int) -> None:
    with pytest.raises(BusError, match="the token is damaged"):
        JoinToken.parse(str(JoinToken.new(FINGERPRINT))[:cut])


async def test_pauses_grow_are_bounded_and_are_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []
    now_s = 1000.0

    async def sleep(delay_s: float) -> None:
        nonlocal now_s
        slept.append(delay_s)
        now_s += delay_s

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr("libs.bus.http.connection.time.monotonic", lambda: now_s)
    caplog.set_level(logging.INFO)
    pauses = Pauses("https://there:1")
    for _ in range(12):
        pauses.failed(ConnectionError("no route"))
        pauses.failed(ConnectionError("another request that was under way"))
        await pauses.over()
    assert all(0.5 * bound <= taken <= bound for bound, taken in zip(_bounds(12), slept, strict=True))
    assert len({taken / bound for bound, taken in zip(_bounds(12), slept, strict=True)}) > 1, "clients are in step"
    pauses.answered()
    pauses.answered()
    await pauses.over()
    assert len(slept) == 12
    assert [record.message for record in caplog.records] == [
        "waiting for the gateway at https://there:1: no route",
        f"the gateway at https://there:1 answers again, after {sum(slept):.1f} s",
    ]


def _bounds(count: int) -> list[float]:
    return [min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number) for number in range(count)]
