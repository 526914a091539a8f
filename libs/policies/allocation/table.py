"""The allocation policies by name. A new one is one new file and one row here."""

from __future__ import annotations

from typing import Any

from libs.policies.allocation.policy import AllocationPolicy
from libs.policies.baselines.artifact_fifo import artifact_fifo
from libs.policies.baselines.gandiva_packing import gandiva_packing
from libs.policies.baselines.isolated import isolated
from libs.policies.problem import Problem, Solution


def _optima() -> Any:
    """The module with what most rows compute.

    Here, because numpy and the solver take as long to import as all else that a process needs which only looks a name
    up, and that are most.
    """
    from libs.policies.allocation import optima

    return optima


def _allox(problem: Problem) -> Solution:
    from libs.policies.baselines.allox import allox  # with numpy, as above

    return allox(problem)


_POLICIES = (
    AllocationPolicy(
        name="max_min_fairness",
        describes="The smallest normalised throughput is as large as can be.",
        solve=lambda problem: _optima().max_min_fairness(problem),
    ),
    AllocationPolicy(
        name="finish_time_fairness",
        describes="No job ends much later than on its own part of the cluster.",
        solve=lambda problem: _optima().finish_time_fairness(problem),
        sees_work=True,
    ),
    AllocationPolicy(
        name="min_makespan",
        describes="All jobs have ended as early as can be.",
        solve=lambda problem: _optima().min_makespan(problem),
        sees_work=True,
    ),
    AllocationPolicy(
        name="fifo",
        describes="Earlier jobs go first, on the GPUs that suit them.",
        solve=lambda problem: _optima().fifo(problem),
    ),
    AllocationPolicy(
        name="shortest_job_first",
        describes="The job that can end first goes first.",
        solve=lambda problem: _optima().shortest_job_first(problem),
        sees_work=True,
    ),
    AllocationPolicy(
        name="max_throughput",
        describes="The most steps per second in total.",
        solve=lambda problem: _optima().max_throughput(problem),
    ),
    AllocationPolicy(
        name="min_cost",
        describes="The most steps per dollar.",
        solve=lambda problem: _optima().min_cost(problem),
    ),
    AllocationPolicy(
        name="min_cost_slo",
        describes="The most steps per dollar that meet all deadlines.",
        solve=lambda problem: _optima().min_cost_slo(problem),
        sees_work=True,
    ),
    AllocationPolicy(
        name="max_throughput_slo",
        describes="The most steps per second that meet all deadlines.",
        solve=lambda problem: _optima().max_throughput_slo(problem),
        sees_work=True,
    ),
    AllocationPolicy(
        name="hierarchical",
        describes="Fair between entities, then inside each.",
        solve=lambda problem: _optima().hierarchical(problem),
        sees_entities=True,
    ),
    AllocationPolicy(
        name="allox",
        describes="The smallest average completion time, by matching jobs to places in the queues of GPUs (AlloX).",
        solve=_allox,
        sees_work=True,
    ),
    AllocationPolicy(
        name="isolated",
        describes="Every job has its own part of the cluster, whatever suits it.",
        solve=isolated,
    ),
    AllocationPolicy(
        name="artifact_fifo",
        describes="FIFO on types drawn by lot, as Gavel's public simulator does it without rates: GPUs stand idle.",
        solve=artifact_fifo,
    ),
    AllocationPolicy(
        name="gandiva_packing",
        describes="As isolated, with pairs of jobs tried at random (Gandiva's packing as the Gavel paper models it).",
        solve=gandiva_packing,
    ),
)
ALLOCATION_POLICIES: dict[str, AllocationPolicy] = {policy.name: policy for policy in _POLICIES}
