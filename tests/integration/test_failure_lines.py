"""The shell that follows lines, killed at any moment of its work: no verdict is lost or comes twice."""

import asyncio
from pathlib import Path

import pytest

from libs.bus import codec
from libs.bus.port import Bus, Outgoing
from libs.contracts import agent
from libs.contracts.agent import JobLogged, LogLine
from libs.contracts.base import Event, Topic
from libs.contracts.cluster import TaskPlacement
from libs.contracts.envelope import Envelope
from libs.contracts.failure_analysis import FailureClassified, FailureObserved, RetryScheduled, RulesLoaded
from libs.contracts.placement import AttemptFailed, JobPlaced, JobSucceeded
from libs.contracts.reasons import Reason
from libs.kernel.ids import request_id
from libs.runtime.clock import SteadyClock
from libs.runtime.listener import Listener
from libs.runtime.shell import Shell
from libs.runtime.stats import Stats
from libs.runtime.tasks import all_or_none
from libs.testing.core_case import arrival
from libs.testing.faults import Crash, Faults, FaultyBus, crashing_bus
from libs.testing.shells import messages
from libs.testing.thorough import sample as pick
from services.failure_analysis.__main__ import judge
from services.failure_analysis.adapters.lines import Lines
from services.failure_analysis.adapters.own_rules import OwnRules
from services.failure_analysis.core.watching import WATCH
from services.failure_analysis.service import SERVICE

WHY = Reason(code="Test", message="said by the test")
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
LOST = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4242"
BROKEN = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
CAUSES = {"oom": "gpu_memory_full", "gang": "json_broken", "silent": "no_signature", "killed": "segmentation_fault"}


def source_of(fact: Event) -> str:
    """The signature of the one that may say it."""
    return agent.source_of(getattr(fact, "node_id", "")) if fact.owner == agent.OWNER else fact.owner


async def give(bus: Bus, *facts: Event) -> None:
    envelopes = [
        Envelope(id=request_id("test", f"{n}/{fact.subject}"), source=source_of(fact), time_s=float(n), event=fact)
        for n, fact in enumerate(facts)
    ]
    await bus.append([codec.outgoing(envelope) for envelope in envelopes])


def lines(job_id: str, *texts: str, rank: int = 0) -> JobLogged:
    printed = [LogLine(time_s=0.0, stream="stderr", rank=rank, text=text) for text in texts]
    return JobLogged(job_id=job_id, attempt=1, node_id=f"n{rank + 1}", lines=printed)


def placed(job_id: str) -> JobPlaced:
    gang = [TaskPlacement(node_id=f"n{rank + 1}", gpu_indices=[rank], first_rank=rank) for rank in (0, 1)]
    return JobPlaced(job_id=job_id, attempt=1, gang=gang, reason=WHY)


def failed(job_id: str, signal: int | None = None) -> AttemptFailed:
    code, outcome = (1, "exited") if signal is None else (None, "signalled")
    return AttemptFailed(
        job_id=job_id, attempt=1, node_id="n1", exit_code=code, signal=signal, outcome=outcome, reason=WHY
    )


def history() -> list[Event]:
    """Four jobs that fail, and one that does not."""
    jobs = [*CAUSES, "well"]
    return [
        *(arrival(job, 2, max_retries=1) for job in jobs),
        *(placed(job) for job in jobs),
        lines("well", "step 1 loss 0.5", "Permission denied: '/scratch', using /tmp"),
        lines("oom", "step 1 loss 0.5"),
        lines("oom", OOM),
        lines("gang", LOST),
        lines("gang", BROKEN, rank=1),
        lines("killed", "step 1 loss 0.5"),
        failed("oom"),
        failed("gang"),
        failed("silent"),
        failed("killed", signal=11),
        JobSucceeded(job_id="well", attempt=1),
    ]


def following(bus: Bus, rules: OwnRules | None = None) -> Lines:
    clock, stats = SteadyClock(), Stats("failure_analysis/lines")
    control = Listener(WATCH, bus, None, clock, stats, every_records=1000, every_s=1000.0)
    return Lines(bus, control, clock, stats, rules or OwnRules(None))


async def facts(bus: FaultyBus) -> list[Envelope]:
    return [codec.record(message).envelope for message in await messages(bus.bus, Topic.CONTROL)]


async def events(bus: FaultyBus, cls: type[Event]) -> list[Event]:
    return [fact.event for fact in await facts(bus) if isinstance(fact.event, cls)]


async def run_until_judged(bus: FaultyBus) -> None:
    """Both loops of the service, from the beginning after each crash, until every job has its verdict."""

    async def judged() -> bool:
        return len(await events(bus, FailureClassified)) == len(CAUSES)

    while not await judged():
        bus.faults.revive()
        stop = asyncio.Event()
        lines_of = following(bus)
        both = all_or_none(stop, lines_of.run(stop), judge(Shell(SERVICE, bus), lines_of, stop))
        running = asyncio.create_task(both)
        while not running.done() and not await judged():
            await asyncio.sleep(0.002)
        stop.set()
        try:
            await running
        except Crash:
            continue


async def judged_with(crash_at: int | None) -> Faults:
    bus = await crashing_bus(crash_at)
    # Lines are followed, and all of that was long ago: the core's patience has ended before either of them starts.
    await give(bus, RulesLoaded(digest="before", rules=1), *history())
    await run_until_judged(bus)
    said = await facts(bus)
    assert len({fact.id for fact in said}) == len(said)
    verdicts = {
        fact.event.job_id: (fact.event.cause, fact.event.rank)
        for fact in said
        if isinstance(fact.event, FailureClassified)
    }
    ranks = {"oom": 0, "gang": 1}
    assert verdicts == {job: (cause, ranks.get(job)) for job, cause in CAUSES.items()}, crash_at
    words = [fact.event.job_id for fact in said if isinstance(fact.event, FailureObserved) and fact.event.complete]
    assert sorted(words) == sorted(CAUSES), crash_at
    return bus.faults


@pytest.mark.thorough
async def test_no_kill_loses_or_doubles_a_verdict():
    faults = await judged_with(None)
    for moment in pick(range(len(faults.moments)), by_default=12):
        await judged_with(moment)


async def test_the_last_word_comes_after_all_lines_and_names_whose_lines_follow_from_it():
    bus = await crashing_bus()
    await give(bus, RulesLoaded(digest="before", rules=1), *history())
    await run_until_judged(bus)
    gang = [event for event in await events(bus, FailureObserved) if event.subject == "gang"]
    assert isinstance(last := gang[-1], FailureObserved)
    assert (last.complete, last.rank, last.node_id, last.others, last.evidence) == (True, 1, "n2", [0], [LOST])
    assert "well" not in {event.subject for event in await events(bus, FailureObserved)}
    assert len(await events(bus, RetryScheduled)) == 2  # silent and killed; the others would fail again


async def test_a_record_that_cannot_be_read_goes_to_the_dead_letters():
    bus = await crashing_bus()
    await bus.append([Outgoing(Topic.LOGS, "oom", [("ce_type", b"job.logged.v1")], b"{no json")])
    await give(bus, RulesLoaded(digest="before", rules=1), *history())
    await run_until_judged(bus)
    assert len(await messages(bus.bus, Topic.DEADLETTER)) == 1


async def test_own_rules_come_into_force_while_the_cell_runs_and_bad_ones_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("services.failure_analysis.adapters.lines.RULES_EVERY_S", 0.0)
    bus, stop = await crashing_bus(), asyncio.Event()
    running = asyncio.create_task(following(bus, OwnRules(tmp_path)).run(stop))

    async def loaded(count: int) -> list[RulesLoaded]:
        async with asyncio.timeout(240):
            while len(found := await events(bus, RulesLoaded)) < count:
                assert not running.done()
                await asyncio.sleep(0.01)
        return [event for event in found if isinstance(event, RulesLoaded)]

    [first] = await loaded(1)
    assert not first.refused
    (tmp_path / "consequences.yaml").write_text("never: [port_in_use]\n")
    assert (await loaded(2))[-1].consequences == {"port_in_use": "never"}
    (tmp_path / "bad.yaml").write_text("rules: [\n")
    refused = (await loaded(3))[-1]
    assert "bad.yaml:" in refused.refused
    assert (refused.digest, refused.consequences) == (first.digest, {"port_in_use": "never"})
    (tmp_path / "bad.yaml").unlink()
    assert not (await loaded(4))[-1].refused
    stop.set()
    await running
    stop.clear()
    again = asyncio.create_task(following(bus, OwnRules(tmp_path)).run(stop))
    await give(bus, *history())
    async with asyncio.timeout(240):
        while len(await events(bus, FailureObserved)) < len(CAUSES):
            await asyncio.sleep(0.01)
    stop.set()
    await again
    assert len(await events(bus, RulesLoaded)) == 4  # what is in force already is not said again
