"""Hypothesis strategies for whole cells: clusters, workloads, requests and faults.

What they draw always comes to an end: what is paused is resumed, what is drained is used again, a limit is
lifted, and every fault is over some time. So every job can be asked to end exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from libs.contracts.gateway import (
    ANTMAN_GUESTS,
    GUESTS,
    ColocatedRate,
    IsolatedRate,
    PolicyChanged,
    SettingChanged,
    ThroughputsProvided,
)
from libs.contracts.jobs import JobClass
from libs.policies.table import POLICIES
from libs.sim.clusters import CPUS_PER_GPU, HOST_BYTES_PER_GPU, Cluster, cluster_of
from libs.sim.leases import Lease
from libs.sim.options import FailureModel, FaultKind
from libs.testing.builders import Scenario, Spec

HORIZON_S = 1000.0
"""Requests and faults begin before."""

times: st.SearchStrategy[float] = st.integers(0, int(HORIZON_S)).map(float)
spans: st.SearchStrategy[float] = st.integers(1, 200).map(float)


def clusters() -> st.SearchStrategy[Cluster]:
    """One or two types, up to 24 GPUs."""
    types = st.dictionaries(st.sampled_from(["v100", "k80"]), st.integers(1, 12), min_size=1, max_size=2)
    return st.builds(cluster_of, types, st.sampled_from([1, 2, 4]))


@st.composite
def specs(draw: st.DrawFn, cluster: Cluster, *, hosts: bool = False) -> Spec:
    """A job that may or may not fit on the cluster; `hosts`: it may ask for CPUs and memory."""
    largest = max(cluster.gpus.values())
    spec = Spec(draw(st.sampled_from(["resnet", "lstm"])))
    gpu_types = draw(st.sampled_from([(), tuple(cluster.gpus)[:1]]))
    spec.gpus(draw(st.integers(1, largest + 1)), *gpu_types, max_nodes=draw(st.sampled_from([None, None, 1, 2])))
    rates = draw(st.sampled_from([{}, {"v100": 4.0, "k80": 1.0}, {"v100": 2.0, "k80": 2.0}]))
    spec.with_(
        model=draw(st.sampled_from(["resnet", "lstm", "gru"])),
        throughputs=rates,
        weight=draw(st.sampled_from([1.0, 3.0])),
        restartable=draw(st.booleans()),
    )
    spec.with_(**(draw(host_needs) if hosts else {}))
    spec.runs(draw(spans)).retries(draw(st.integers(0, 2))).priority(draw(st.sampled_from([0, 0, 0, 5])))
    return spec.tenant(draw(st.sampled_from(["research", "product"])))


host_needs = st.fixed_dictionaries(
    {
        "cpus": st.sampled_from([None, 1, 5, CPUS_PER_GPU, 2 * CPUS_PER_GPU]),
        "memory_bytes": st.sampled_from([None, HOST_BYTES_PER_GPU // 2, HOST_BYTES_PER_GPU, HOST_BYTES_PER_GPU * 2]),
    }
)
"""What a job may ask for beside each of its GPUs: less than its share of a simulated server, all of it, or more."""


def failure_models() -> st.SearchStrategy[FailureModel]:
    """Attempts that fail and are slow, seldom or often."""
    ratios = st.sampled_from([0.0, 0.2, 0.6])
    return st.builds(lambda fail, slow: FailureModel(attempt_failure_ratio=fail, straggler_ratio=slow), ratios, ratios)


LEASES = (
    Lease(),
    Lease(node_timeout_s=6.0, margin_s=1.0, grace_s=20.0, heartbeat_s=0.5),
    Lease(node_timeout_s=30.0, margin_s=10.0, grace_s=0.0),
)


def options() -> st.SearchStrategy[dict[str, Any]]:
    """Delays, and whether services lag behind."""
    delays = st.sampled_from([0.0, 0.5, 7.0])
    return st.fixed_dictionaries(
        {
            "start_delay_s": delays,
            "stop_delay_s": delays,
            "suspend_delay_s": delays,
            "resume_delay_s": delays,
            "move_delay_s": st.sampled_from([None, 0.0, 0.5, 7.0]),
            "lease": st.sampled_from(LEASES),
            "interleaving": st.one_of(st.none(), st.integers(0, 5)),
            "failures": failure_models(),
            "profile_every_s": st.sampled_from([None, None, 20.0]),
            "utilisations": st.sampled_from([{}, {"resnet": 0.4, "lstm": 0.3}]),
        }
    )


@st.composite
def scenarios(
    draw: st.DrawFn, *, most_jobs: int = 8, faults: bool = True, policy: str = "", hosts: bool = False
) -> Scenario:
    """A cell with jobs, requests and, unless told otherwise, trouble.

    Args:
        policy: in force from the start; empty: the default one.
        hosts: whether jobs ask for CPUs and memory.
    """
    cluster = draw(clusters())
    scenario = Scenario(seed=draw(st.integers(0, 3))).options(**draw(options()))
    per_server = max(server.gpus for server in cluster.servers)
    scenario.servers(per_server, **cluster.gpus)
    nodes = st.sampled_from([server.node_id for server in cluster.servers])
    jobs = [f"job-{number}" for number in range(draw(st.integers(1, most_jobs)))]
    for job_id in jobs:
        scenario.job(job_id, at=draw(times), spec=draw(specs(cluster, hosts=hosts)))
    _draw_requests(draw, scenario, jobs, nodes)
    if policy:
        scenario.plan(0.0, PolicyChanged(policy=policy, requested_by="op"))
    _draw_policies(draw, scenario)
    if faults:
        _draw_faults(draw, scenario, nodes, times, most=4)
    return scenario


LONG_ENOUGH = (
    ("placement", "slice_s", [20.0, 40.0]),
    ("placement", "round_s", [20.0, 40.0]),
    ("migration", "move_rest_s", [5.0, 30.0]),
    ("migration", "grow_after_s", [2.0, 30.0]),
)
"""(Service, setting, values) by which jobs get somewhere although they take turns, move, grow and shrink."""


@st.composite
def crowded_cells(draw: st.DrawFn, *, policy: str = "gandiva", hosts: bool = False) -> Scenario:
    """A small cell with more jobs than it has room for: they take turns, and move to wherever others have left.

    Args:
        policy: in force from the start.
        hosts: whether jobs ask for CPUs and memory, never for more of it than a job that has a server for itself.
    """
    scenario = Scenario(seed=draw(st.integers(0, 3))).options(**draw(options()))
    scenario.options(move_delay_s=draw(st.sampled_from([0.0, 0.5, 7.0])), profile_every_s=20.0)
    per_server = draw(st.sampled_from([2, 4]))
    servers = draw(st.integers(2, 4))
    scenario.servers(per_server, v100=per_server * servers)
    nodes = [f"v100-{number:03}" for number in range(servers)]
    early = st.integers(0, 300).map(float)
    jobs = [f"job-{number}" for number in range(draw(st.integers(4, 12)))]
    for job_id in jobs:
        model = draw(st.sampled_from(["resnet", "lstm"]))
        width = draw(st.sampled_from([1, 1, 1, 2, 2, 3]))
        spec = Spec(model).with_(model=model, restartable=draw(st.booleans())).gpus(width)
        if hosts and width <= per_server // 2:
            spec.with_(**draw(host_needs))
        if draw(st.booleans()):
            spec.elastic(1, max(width, per_server))
        spec.runs(draw(spans)).retries(draw(st.integers(0, 2)))
        scenario.job(job_id, at=draw(st.integers(0, 60).map(float)), spec=spec)
    _draw_requests(draw, scenario, jobs, st.sampled_from(nodes), early)
    scenario.plan(0.0, PolicyChanged(policy=policy, requested_by="op"))
    _draw_long_enough(draw, scenario)
    if draw(st.booleans()):
        scenario.plan(draw(early), PolicyChanged(policy=draw(st.sampled_from(tuple(POLICIES))), requested_by="op"))
    _draw_faults(draw, scenario, st.sampled_from(nodes), early)
    return scenario


@st.composite
def moving_cells(draw: st.DrawFn) -> Scenario:
    """A small cell in which jobs are moved all the time, while users, operators and nodes do all that they can.

    Nodes are drained at once, some twice; tasks that are to take over end, or never come so far; jobs are slow to stand
    still; and jobs are paused, resumed and cancelled, quotas lowered and policies switched meanwhile.
    """
    scenario = Scenario(seed=draw(st.integers(0, 9))).options(**draw(options()))
    failures = FailureModel(
        attempt_failure_ratio=draw(st.sampled_from([0.0, 0.0, 0.3])),
        takeover_failure_ratio=draw(st.sampled_from([0.0, 0.3, 0.7])),
    )
    scenario.options(
        failures=failures,
        move_delay_s=draw(st.sampled_from([0.0, 0.5, 7.0])),
        suspend_delay_s=draw(st.sampled_from([0.0, 0.5, 7.0, 41.0])),
        profile_every_s=20.0,
        parks=draw(st.sampled_from([True, True, False])),
    )
    per_server, servers = draw(st.sampled_from([1, 2, 4])), draw(st.integers(2, 5))
    scenario.servers(per_server, v100=per_server * servers)
    nodes = st.sampled_from([f"v100-{number:03}" for number in range(servers)])
    early = st.integers(20, 240).map(float)
    jobs = [f"job-{number}" for number in range(draw(st.integers(2, 6)))]
    for job_id in jobs:
        width = draw(st.sampled_from([1, 1, 2, min(3, per_server * servers), per_server]))
        spec = Spec("resnet").with_(model="resnet", restartable=draw(st.booleans())).gpus(width)
        if width <= per_server and draw(st.booleans()):
            spec.elastic(1, per_server)
        spec.runs(draw(st.integers(60, 400).map(float))).retries(draw(st.integers(0, 2)))
        spec.priority(draw(st.sampled_from([0, 0, 5]))).tenant("research")
        scenario.job(job_id, at=draw(st.integers(0, 60).map(float)), spec=spec)
    for _ in range(draw(st.integers(1, 6))):
        begin = draw(early)
        scenario.drain(draw(nodes), at=begin, until=begin + draw(spans), now=draw(st.sampled_from([True, True, False])))
    _draw_requests(draw, scenario, jobs, nodes, early)
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(early)
        scenario.pause(draw(st.sampled_from(jobs)), at=begin, until=begin + draw(spans))
    scenario.plan(
        0.0, PolicyChanged(policy=draw(st.sampled_from(("gandiva", "gandiva", "backfill"))), requested_by="op")
    )
    for _ in range(draw(st.integers(0, 3))):
        scenario.plan(draw(early), PolicyChanged(policy=draw(st.sampled_from(tuple(POLICIES))), requested_by="op"))
    _draw_long_enough(draw, scenario)
    _draw_faults(draw, scenario, nodes, early)
    return scenario


@st.composite
def cells_with_guests(draw: st.DrawFn, *, policies: Sequence[str] = tuple(POLICIES), quiet: bool = False) -> Scenario:
    """A small cell with jobs of all three classes, quotas, and guests that are switched on and off.

    Args:
        policies: one of them is in force from the start.
        quiet: nothing goes wrong, and neither policy nor guests are switched.
    """
    scenario = Scenario(seed=draw(st.integers(0, 3))).options(**draw(options()), scales=draw(st.booleans()))
    scenario.options(profile_every_s=20.0, utilisations={"resnet": 0.9, "lstm": 0.2})
    per_server, servers = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 3))
    scenario.servers(per_server, v100=per_server * servers)
    nodes = st.sampled_from([f"v100-{number:03}" for number in range(servers)])
    early = st.integers(0, 300).map(float)
    for tenant in ("research", "product"):
        scenario.tenant(tenant, draw(st.integers(0, per_server * servers)), at=0.0)
    for number in range(draw(st.integers(4, 12))):
        job_class = draw(st.sampled_from(JobClass))
        width = draw(st.sampled_from([1, 1, 2, min(3, per_server * servers)]))
        spec = Spec(draw(st.sampled_from(["resnet", "lstm"]))).gpus(width).priority(draw(st.integers(0, 1)))
        spec.tenant(draw(st.sampled_from(["research", "product"]))).runs(draw(spans)).retries(draw(st.integers(0, 1)))
        spec.with_(job_class=job_class, restartable=draw(st.booleans()))
        scenario.job(f"job-{number}", at=draw(st.integers(0, 60).map(float)), spec=spec)
    for at in (0.0, *([] if quiet else draw(st.lists(early, max_size=3)))):
        guests = ANTMAN_GUESTS if at == 0.0 else draw(st.sampled_from(GUESTS))
        scenario.plan(at, PolicyChanged(policy=draw(st.sampled_from(policies)), requested_by="op", guests=guests))
    _draw_long_enough(draw, scenario)
    scenario.tenant("research", None, at=400.0).tenant("product", None, at=400.0)
    if not quiet:
        _draw_faults(draw, scenario, nodes, early, most=2)
    return scenario


@st.composite
def troubled_cells(draw: st.DrawFn) -> Scenario:
    """A cell of any kind, with all policies, gangs, moves, slices, rounds and guests, to whose nodes much happens."""
    cells = [
        scenarios(),
        crowded_cells(),
        crowded_cells(policy="max_min_fairness"),
        moving_cells(),
        cells_with_guests(),
    ]
    scenario = draw(st.one_of(cells))
    _draw_faults(draw, scenario, st.sampled_from(scenario.node_ids), st.integers(0, 400).map(float), most=6)
    # A request after everything else: what goes on although its job has ended is seen to.
    return scenario.tenant("research", None, at=2 * HORIZON_S)


def _draw_long_enough(draw: st.DrawFn, scenario: Scenario) -> None:
    for service, name, values in LONG_ENOUGH:
        value = draw(st.sampled_from(values))
        scenario.plan(0.0, SettingChanged(service=service, name=name, value=value, requested_by="op"))


def _draw_faults(
    draw: st.DrawFn,
    scenario: Scenario,
    nodes: st.SearchStrategy[str],
    early: st.SearchStrategy[float],
    most: int = 3,
) -> None:
    for _ in range(draw(st.integers(0, most))):
        kind, more = draw(st.sampled_from(FaultKind)), {}
        if kind is FaultKind.LATE:
            more = {"delay_s": draw(st.sampled_from([0.5, 4.0, 45.0]))}
        elif kind is FaultKind.CLOCK:
            more = {"offset_s": draw(OFFSETS), "drift_ratio": draw(st.sampled_from([0.0, 0.0, 0.01, -0.5]))}
        scenario.fault(kind, draw(nodes), at=draw(early), for_s=draw(spans), **more)


OFFSETS = st.sampled_from([-3600.0, -30.0, 2.5, 30.0, 3600.0, 86400.0, 2.3e9])
"""Seconds by which a clock is ahead: a little, hours, decades."""


def _draw_policies(draw: st.DrawFn, scenario: Scenario) -> None:
    """Operators switch between queues, allocations and slices while jobs run.

    Rounds are longer than tasks take to start: else no job would get anywhere.
    """
    round_s = SettingChanged(service="placement", name="round_s", value=10.0 + draw(spans), requested_by="op")
    slice_s = SettingChanged(service="placement", name="slice_s", value=draw(spans), requested_by="op")
    scenario.plan(0.0, round_s).plan(0.0, slice_s).plan(0.0, pairs_of_two_models())
    for _ in range(draw(st.integers(0, 2))):
        policy = PolicyChanged(
            policy=draw(st.sampled_from(tuple(POLICIES))),
            requested_by="op",
            space_sharing=draw(st.booleans()),
            heterogeneity_aware=draw(st.booleans()),
            water_filling=draw(st.booleans()),
        )
        scenario.plan(draw(times), policy)


def pairs_of_two_models() -> ThroughputsProvided:
    """Both models pack well with each other and with themselves, on every width and type."""
    return ThroughputsProvided(
        provided_by="op",
        isolated=[
            IsolatedRate(model=model, batch_size=None, gpus=gpus, steps_per_s={"v100": 1.0, "k80": 0.9})
            for model in ("resnet", "lstm")
            for gpus in range(1, 13)
        ],
        colocated=[
            ColocatedRate(
                a_model=a,
                b_model=b,
                a_batch_size=None,
                b_batch_size=None,
                gpus=gpus,
                gpu_type=gpu_type,
                a_steps_per_s=0.8,
                b_steps_per_s=0.7,
            )
            for a, b in (("resnet", "lstm"), ("resnet", "resnet"))
            for gpus in range(1, 13)
            for gpu_type in ("v100", "k80")
        ],
    )


def _draw_requests(
    draw: st.DrawFn,
    scenario: Scenario,
    jobs: list[str],
    nodes: st.SearchStrategy[str],
    times: st.SearchStrategy[float] = times,
) -> None:
    for _ in range(draw(st.integers(0, 3))):
        scenario.cancel(draw(st.sampled_from(jobs)), at=draw(times))
    for _ in range(draw(st.integers(0, 2))):
        begin = draw(times)
        scenario.pause(draw(st.sampled_from(jobs)), at=begin, until=begin + draw(spans))
    for _ in range(draw(st.integers(0, 2))):
        begin = draw(times)
        scenario.drain(draw(nodes), at=begin, until=begin + draw(spans), now=draw(st.booleans()))
    for tenant in draw(st.lists(st.sampled_from(["research", "product"]), max_size=2, unique=True)):
        begin = draw(times)
        scenario.tenant(tenant, draw(st.sampled_from([0, 2, 6])), at=begin)
        scenario.tenant(tenant, None, at=begin + draw(spans))
