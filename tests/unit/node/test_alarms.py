"""Alarms from samples that are made by hand: 20 cases in which there is one, 200 and more in which there is none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from libs.contracts.agent import RankSample, TaskSampled
from libs.contracts.introspection import GpuIdle, JobRecovered, JobStalled, LossDiverged
from libs.node.alarms import IDLE, STALLED, Alarm, Alarms, Limits, Watched, alarm_of

BEAT_S = 2.0
LIMITS = Limits()


@dataclass
class Rank:
    """One rank as its agent sees it (`torch_agent/watching.py`)."""

    done: int = 0
    quiet_s: float = 0.0
    busy_s: float = 0.0
    longest_s: float = 0.0
    p99_s: float = 0.1
    nonfinite: int = 0


@dataclass
class Life:
    """An attempt of some ranks on some nodes, and introspection with it."""

    nodes: int = 1
    ranks: int = 1
    """Per node."""
    p99_s: float = 0.1
    limits: Limits = LIMITS
    running: bool = True
    idle_s: float = 0.0
    found: list[Alarm] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)
    stalled_at: int = 0

    def __post_init__(self) -> None:
        self.alarms = Alarms(self.limits)
        self.all = {f"n{n}": [Rank(p99_s=self.p99_s) for _ in range(self.ranks)] for n in range(self.nodes)}

    @property
    def each(self) -> list[Rank]:
        return [rank for ranks in self.all.values() for rank in ranks]

    def beat(self, *, computing: bool | None = True, without: tuple[str, ...] = ()) -> None:
        """The samples of one heartbeat; nothing comes of some nodes."""
        watched = Watched(1, dict.fromkeys(self.all, self.ranks), dict(self.told), self.stalled_at)
        for node_id, ranks in self.all.items():
            if node_id in without:
                continue
            sample = TaskSampled(
                job_id="j",
                attempt=1,
                node_id=node_id,
                running=self.running,
                ranks=[self._sample(number, rank) for number, rank in enumerate(ranks)],
                computing=computing,
                idle_s=self.idle_s,
            )
            for key, fact in self.alarms.take(sample, watched):
                self.keys.append(key)
                self.found.append(fact)

    def _sample(self, number: int, rank: Rank) -> RankSample:
        return RankSample(
            rank=number,
            minibatches_total=rank.done,
            quiet_s=rank.quiet_s,
            busy_s=rank.busy_s,
            longest_quiet_s=rank.longest_s,
            p99_s=rank.p99_s,
            nonfinite=rank.nonfinite,
            loss_nonfinite="nan" if rank.nonfinite else "",
        )

    def trains(self, seconds: float = 60.0, per_s: float = 10.0) -> Life:
        """Mini-batches of all ranks."""
        for _ in range(int(seconds / BEAT_S)):
            self.goes_on(self.each, per_s)
            self.beat()
        return self

    def goes_on(self, ranks: list[Rank], per_s: float = 10.0) -> None:
        for rank in ranks:
            rank.done += max(1, round(per_s * BEAT_S))
            self.sign(rank)
        self.idle_s = 0.0

    def sign(self, rank: Rank) -> None:
        rank.longest_s, rank.quiet_s, rank.busy_s = max(rank.longest_s, rank.quiet_s), 0.0, 0.0

    def is_quiet(self, seconds: float, *, computing: bool | None = False, idle: bool = False) -> Life:
        """Nothing of any rank for so long, in which it may compute."""
        for _ in range(int(seconds / BEAT_S)):
            for rank in self.each:
                rank.quiet_s += BEAT_S if self.running else 0.0
                rank.busy_s += BEAT_S if self.running and computing is not False else 0.0
            self.idle_s = self.idle_s + BEAT_S if idle and self.running else 0.0
            self.beat(computing=computing)
        return self

    def reads_back(self, facts: int | None = None) -> Life:
        """Introspection was killed, and finds on the log what was committed: so many of the facts."""
        kept = self.found[: len(self.found) if facts is None else facts]
        self.alarms, self.told, self.stalled_at = Alarms(self.limits), {}, 0
        for fact in kept:
            self.told[alarm_of(fact)] = self.told.get(alarm_of(fact), 0) + 1
            self.stalled_at = fact.minibatches_total if isinstance(fact, JobStalled) else self.stalled_at
        return self


def names(life: Life) -> list[str]:
    return [type(fact).__name__ for fact in life.found]


def one_of_two_nodes_hangs_first(life: Life) -> Life:
    life.trains()
    for _ in range(5):  # the other node waits for it in a collective a moment later
        life.all["n0"][0].quiet_s += BEAT_S
        life.goes_on(life.all["n1"])
        life.beat()
    return life.is_quiet(70.0)


def after_a_long_evaluation(life: Life) -> Life:
    life.trains().is_quiet(50.0)
    life.trains()
    return life.is_quiet(80.0)


def diverges(life: Life, rank: int, times: int) -> Life:
    life.trains()
    life.each[rank].nonfinite = times
    return life.trains(2.0)


FOUND: dict[str, tuple[Callable[[], Life], list[str]]] = {
    "a deadlock": (lambda: Life().trains().is_quiet(70.0), ["JobStalled"]),
    "a deadlock of two ranks": (lambda: Life(ranks=2).trains().is_quiet(70.0), ["JobStalled"]),
    "a deadlock over two nodes": (lambda: Life(nodes=2).trains().is_quiet(70.0), ["JobStalled"]),
    "one node hangs first": (lambda: one_of_two_nodes_hangs_first(Life(nodes=2)), ["JobStalled"]),
    "mini-batches of 20 s": (lambda: Life(p99_s=20.0).trains(1200.0, 0.05).is_quiet(170.0), ["JobStalled"]),
    "mini-batches of 5 min": (lambda: Life(p99_s=300.0).trains(9000.0, 0.01).is_quiet(2500.0), ["JobStalled"]),
    "a collective that spins": (lambda: Life().trains().is_quiet(310.0, computing=True), ["JobStalled"]),
    "an endless loop with 2 ranks": (lambda: Life(ranks=2).trains().is_quiet(310.0, computing=True), ["JobStalled"]),
    "whether it computes is not known": (lambda: Life().trains().is_quiet(310.0, computing=None), ["JobStalled"]),
    "after a long evaluation": (lambda: after_a_long_evaluation(Life()), ["JobStalled"]),
    "a stall that ends": (lambda: Life().trains().is_quiet(70.0).trains(), ["JobStalled", "JobRecovered"]),
    "a stall, and a longer one": (
        lambda: Life().trains().is_quiet(70.0).trains().is_quiet(110.0).trains(),
        ["JobStalled", "JobRecovered"] * 2,
    ),
    "a stall that becomes idle": (lambda: Life().trains().is_quiet(910.0, idle=True), ["JobStalled", "GpuIdle"]),
    "a suspended job hangs later": (lambda: suspended(Life().trains(), 600.0).trains().is_quiet(70.0), ["JobStalled"]),
    "NaN": (lambda: diverges(Life(), 0, 5), ["LossDiverged"]),
    "NaN for ever": (lambda: diverges(Life(), 0, 100).trains(), ["LossDiverged"]),
    "NaN on one rank": (lambda: diverges(Life(ranks=4), 3, 7), ["LossDiverged"]),
    "GPUs never used": (lambda: Life().is_quiet(910.0, idle=True), ["GpuIdle"]),
    "GPUs of two nodes never used": (lambda: Life(nodes=2, ranks=4).is_quiet(910.0, idle=True), ["GpuIdle"]),
    "idle, used, idle": (
        lambda: Life().is_quiet(910.0, idle=True).is_quiet(4.0, computing=True).is_quiet(910.0, idle=True),
        ["GpuIdle", "JobRecovered", "GpuIdle"],
    ),
}


def suspended(life: Life, seconds: float) -> Life:
    life.running = False
    life.is_quiet(seconds, computing=None)
    life.running = True
    return life


@pytest.mark.parametrize("case", FOUND)
def test_an_alarm_is_told_once_per_episode(case: str):
    made, expected = FOUND[case]
    life = made()
    assert names(life) == expected
    assert len(set(life.keys)) == len(life.keys)


def test_twenty_cases_are_made():
    assert len(FOUND) == 20


def healthy(chance: random.Random) -> Iterator[tuple[str, Callable[[Life], object]]]:
    """Kinds of what a healthy job does."""
    yield "evaluates with a loader", lambda life: signs(life, chance.uniform(60, 1800))
    yield "evaluates without one", lambda life: life.is_quiet(chance.uniform(60, 280), computing=True)
    yield "evaluates, computing and reading by turns", by_turns
    yield "saves a checkpoint", lambda life: life.is_quiet(chance.uniform(1, 55))
    yield "loads data at the start of an epoch", lambda life: life.is_quiet(chance.uniform(1, 55))
    yield "compiles again", lambda life: life.is_quiet(chance.uniform(60, 280), computing=True)
    yield "is suspended", lambda life: suspended(life, chance.uniform(60, 7200))
    yield "moves", lambda life: suspended(life, chance.uniform(1, 300))
    yield "skips steps", lambda life: skips(life, chance.randrange(1, 5))
    yield "loses a node for a while", lambda life: loses_a_node(life, chance.uniform(60, 1800))
    yield "has an agent that starts anew", restarts_an_agent
    yield "has ranks that end early", lambda life: ends_early(life, chance.uniform(60, 600))


def signs(life: Life, seconds: float) -> None:
    for _ in range(int(seconds / BEAT_S)):
        for rank in life.each:
            life.sign(rank)
        life.beat()


def by_turns(life: Life) -> None:
    for _ in range(12):
        life.is_quiet(8.0, computing=True)
        life.is_quiet(2.0, computing=False)


def skips(life: Life, times: int) -> None:
    for in_a_row in (*range(1, times + 1), 0):
        for rank in life.each:
            rank.nonfinite = in_a_row
        life.trains(BEAT_S)


def loses_a_node(life: Life, seconds: float) -> None:
    """Its ranks wait for those of the node, of which nothing is heard: that is another fact."""
    for _ in range(int(seconds / BEAT_S)):
        for rank in life.each:
            rank.quiet_s += BEAT_S
        life.beat(computing=False, without=("n0",))
    for rank in life.each:
        rank.quiet_s = rank.busy_s = 0.0


def restarts_an_agent(life: Life) -> None:
    for rank in life.each:
        rank.quiet_s = rank.busy_s = rank.longest_s = 0.0
    life.beat(computing=None)


def ends_early(life: Life, seconds: float) -> None:
    for _ in range(int(seconds / BEAT_S)):
        life.goes_on(life.each[1:] or life.each)
        life.each[0].quiet_s += BEAT_S
        life.beat()


@pytest.mark.parametrize("seed", range(20))
def test_healthy_jobs_make_no_alarm(seed: int):
    """Twelve kinds of pauses per seed, each in a life with others before and after it."""
    chance = random.Random(seed)
    for number, (kind, _) in enumerate(list(healthy(chance))):
        per_s = chance.choice([0.2, 2.0, 30.0])
        life = Life(nodes=chance.choice([1, 2]), ranks=chance.choice([1, 4]), p99_s=1.5 / per_s)
        # A first compilation takes as long as it likes: there is no rhythm to fall out of.
        life.is_quiet(chance.uniform(0, 800), computing=True)
        life.trains(30 / per_s, per_s)
        for other in chance.choices(range(12), k=3):
            list(healthy(chance))[other][1](life)
            life.trains(20.0, per_s)
        list(healthy(chance))[number][1](life)
        life.trains(20.0, per_s)
        assert names(life) == [], kind


def test_a_job_without_a_rhythm_does_not_stall():
    life = Life().trains(BEAT_S, 5.0)
    assert life.each[0].done < LIMITS.rhythm_minibatches
    assert names(life.is_quiet(5000.0)) == []


def killed(after: int | None, *, committed: bool) -> Life:
    """Introspection is killed after so many heartbeats; what it said at the last of them may not be on the log yet."""
    life, beats = Life().trains(), 0
    for computing, idle, seconds in ((False, True, 910), (True, False, 4), (False, True, 910)):
        for _ in range(int(seconds / BEAT_S)):
            before = len(life.found)
            life.is_quiet(BEAT_S, computing=computing, idle=idle)
            beats += 1
            if beats == after:
                if not committed:
                    del life.found[before:], life.keys[before:]
                life.reads_back()
    return life.trains()


def test_a_kill_at_any_heartbeat_neither_loses_a_fact_nor_doubles_it():
    undisturbed = killed(None, committed=True)
    assert names(undisturbed) == ["JobStalled", "GpuIdle", "JobRecovered", "GpuIdle", "JobRecovered", "JobRecovered"]
    around_facts = [moment + step for moment in (30, 450, 456, 907) for step in (-1, 0, 1)]
    for moment in sorted({*around_facts, *range(1, 912, 70)}):
        for committed in (True, False):
            found = killed(moment, committed=committed)
            # What was lost with the heartbeat at which GPUs were used again is said when they are used the next time.
            assert sorted(found.keys) == sorted(undisturbed.keys) or (moment in (456, 457) and not committed)
            assert len(set(found.keys)) == len(found.keys)


def test_facts_say_what_was_compared():
    stalled = Life(ranks=2).trains().is_quiet(70.0).found[0]
    assert isinstance(stalled, JobStalled)
    assert (stalled.quiet_s, stalled.limit_s, stalled.p99_s, stalled.minibatches_total) == (60.0, 60.0, 0.1, 600)
    assert stalled.reason.message == "no mini-batch for 60 s, after 600 of which 99 in 100 took at most 0.1 s"
    spins = Life().trains().is_quiet(310.0, computing=True).found[0]
    assert isinstance(spins, JobStalled) and "endless loop or a collective" in spins.reason.message
    idle = Life(nodes=2, ranks=4).is_quiet(910.0, idle=True).found[0]
    assert isinstance(idle, GpuIdle) and idle.gpus == 8
    assert idle.reason.message == "8 GPUs held for 15 min without being used, and no mini-batch done"
    diverged = diverges(Life(ranks=4), 3, 7).found[0]
    assert isinstance(diverged, LossDiverged)
    assert diverged.reason.message == "the loss of rank 3 is nan, 7 times in a row, after 620 mini-batches"
    recovered = Life().trains().is_quiet(70.0).trains().found[1]
    assert isinstance(recovered, JobRecovered) and recovered.alarm == STALLED != IDLE


def test_processes_that_are_gone_or_begin_anew_are_no_progress_before_they_make_some():
    life = Life(ranks=2).trains()
    life.each[1].done -= 1
    life.is_quiet(70.0)
    ranks = life.all["n0"]
    life.all["n0"] = ranks[1:]  # the furthest one is killed
    life.is_quiet(10.0)
    life.all["n0"] = []
    life.is_quiet(10.0)
    life.all["n0"] = [Rank(), Rank()]  # its launcher starts them again
    life.is_quiet(10.0)
    assert names(life) == ["JobStalled"]
    assert names(life.trains(2.0)) == ["JobStalled", "JobRecovered"]


def test_an_agent_that_starts_anew_is_no_progress_either():
    life = Life().trains().is_quiet(70.0)
    restarts_an_agent(life)
    assert names(life.is_quiet(400.0)) == ["JobStalled"]


def test_samples_of_other_attempts_and_of_ended_jobs_change_nothing():
    alarms = Alarms(LIMITS)
    life = Life()
    life.trains()
    for rank in life.each:
        rank.quiet_s = 1000.0
    sample = TaskSampled(
        job_id="j",
        attempt=1,
        node_id="n0",
        running=True,
        ranks=[life._sample(0, life.each[0])],
        computing=False,
        idle_s=0,
    )
    assert alarms.take(sample, None) == []
    assert alarms.take(sample, Watched(2, {"n0": 1})) == []
    assert len(alarms.take(sample, Watched(1, {"n0": 1}))) == 1
