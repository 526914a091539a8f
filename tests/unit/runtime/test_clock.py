"""Sleepers wake when their time has come."""

import asyncio

from libs.runtime.clock import ManualClock, SteadyClock


async def test_a_manual_clock_wakes_what_is_due_and_nothing_else():
    clock = ManualClock(100.0)
    early, late = asyncio.create_task(clock.sleep_until(105.0)), asyncio.create_task(clock.sleep_until(106.0))
    await asyncio.sleep(0)
    clock.advance(5.0)
    await early
    assert not late.done()
    clock.advance(1.0)
    await late


async def test_the_wall_clock_does_not_wake_early():
    clock = SteadyClock()
    until = clock.now_s() + 0.02
    await clock.sleep_until(until)
    assert clock.now_s() >= until


def test_times_are_whole_microseconds():
    now_s = SteadyClock().now_s()
    assert round(now_s * 1e6) / 1e6 == now_s
