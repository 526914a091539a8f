"""The simulated cluster, and generated workloads."""

from __future__ import annotations

import pytest

from libs.contracts.bad_input import BadInput
from libs.sim.clusters import parse_cluster
from libs.sim.throughputs import Config, Pair, Throughputs, parse_throughputs
from libs.sim.traces import TraceJob
from libs.sim.workloads import generate, known_rates, workload_of

TABLE = parse_throughputs(
    {
        "format": "throughputs/1",
        "gpu_types": ["k80", "v100"],
        "isolated": [
            {"model": "LM", "batch_size": 5, "gpus": 1, "consolidated": True, "steps_per_s": {"k80": 0, "v100": 9.0}}
        ],
    },
    "t.json",
)


def test_a_cluster_is_cut_into_servers():
    cluster = parse_cluster("v100=10,k80=4", gpus_per_server=4)
    assert [(s.node_id, s.gpus) for s in cluster.servers] == [
        ("v100-000", 4),
        ("v100-001", 4),
        ("v100-002", 2),
        ("k80-000", 4),
    ]
    assert cluster.gpus == {"v100": 10, "k80": 4}
    assert cluster.total_gpus == 14


@pytest.mark.parametrize("text", ["", "v100", "v100=", "v100=0", "v100=-4", "v100=4.5", "V100=4", "=4", "v100=٤"])
def test_a_cluster_that_cannot_be_understood(text):
    with pytest.raises(BadInput, match=r"--cluster: .*; expected TYPE=COUNT"):
        parse_cluster(text)


def test_a_type_twice_and_a_server_without_gpus():
    with pytest.raises(BadInput, match="type 'v100' twice"):
        parse_cluster("v100=4,v100=4")
    with pytest.raises(BadInput, match="--gpus-per-server: 0"):
        parse_cluster("v100=4", gpus_per_server=0)


def test_the_same_seed_gives_the_same_jobs():
    assert generate(50, seed=1) == generate(50, seed=1)
    assert generate(50, seed=1) != generate(50, seed=2)


def test_one_distribution_can_be_changed_without_shifting_the_others():
    some, others = generate(50, seed=1), generate(50, seed=1, median_s=5.0, tenants=("a", "b", "c"))
    assert [job.submit_time_s for job in some] == [job.submit_time_s for job in others]
    assert [job.gpus for job in some] == [job.gpus for job in others]


def test_the_mix_is_roughly_as_asked():
    jobs = generate(2000, seed=4, jobs_per_hour=60.0)
    shares = {count: sum(job.gpus == count for job in jobs) / len(jobs) for count in (1, 2, 4, 8)}
    assert shares == pytest.approx({1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}, abs=0.03)
    assert jobs[-1].submit_time_s / 3600 == pytest.approx(2000 / 60, rel=0.1)


def test_types_without_a_rate_are_excluded_by_the_job():
    job = TraceJob(job_id="a", submit_time_s=0.0, gpus=1, model="LM", batch_size=5, total_steps=10)
    (arrived,) = workload_of([job], TABLE).jobs
    assert arrived.spec.gpus.excluded_types == ["k80"]


def test_a_job_without_any_rate_is_an_error_or_left_out():
    job = TraceJob(job_id="a", submit_time_s=0.0, gpus=2, model="LM", batch_size=5, total_steps=10)
    with pytest.raises(BadInput, match="job a: no rate for model 'LM', batch size 5, 2 GPUs"):
        workload_of([job], TABLE)
    told: list[str] = []
    assert workload_of([job], TABLE, told.append).jobs == []
    assert told == ["job a is left out: no rate for model 'LM', batch size 5, 2 GPUs"]


def test_the_last_servers_of_a_cluster_are_set_apart():
    cluster = parse_cluster("v100=10,k80=4", gpus_per_server=4).with_trial_pool(1)
    assert [server.node_id for server in cluster.servers if server.pool] == ["k80-000"]
    assert cluster.servers[-1].joined(1, []).features == ["pool:trial"]
    assert (cluster.total_gpus, cluster.shared_gpus) == (14, 10)
    with pytest.raises(BadInput, match="fewer servers than the cluster has, 4"):
        cluster.with_trial_pool(4)


def config(model: str) -> Config:
    return model, None, 1


def pair(a: str, b: str) -> Pair:
    return Pair(a=config(a), b=config(b), gpu_type="v100", consolidated=True, a_steps_per_s=0.5, b_steps_per_s=0.5)


def test_of_configurations_that_are_no_references_pairs_with_these_may_have_been_measured():
    rates = {(config(name), True): {"v100": 1.0} for name in "abcd"}
    table = Throughputs(["v100"], rates, [pair(*both) for both in ("aa", "ab", "ac", "bb", "bc", "bd", "cc")])
    jobs = [TraceJob(job_id=name, submit_time_s=0.0, gpus=1, model=name, total_steps=9.0) for name in "abc"]
    played = workload_of(jobs, table)

    def pairs(*answers: bool) -> list[str]:
        left = list(answers)
        known = known_rates(played, table, 2, lambda: left.pop(0) if left else False)
        return [f"{row.a_model}{row.b_model}" for row in known.colocated]

    assert pairs() == ["aa", "ac", "cc"], "every second configuration is a reference"
    assert pairs(True) == ["aa", "ab", "ac", "cc"]
    assert pairs(False, True) == ["aa", "ac", "bc", "cc"], "neither beside itself, nor one that no job has"
