"""What can never run is refused at once."""

from typing import Any

import pytest

from libs.contracts.admission import JobAdmitted, JobRejected
from libs.contracts.agent import NodeLeft
from libs.contracts.features import TRIALS, pool
from libs.contracts.gateway import PolicyChanged, TenantConfigured
from libs.contracts.introspection import NodeLost
from libs.contracts.jobs import GpuRequest, JobClass
from libs.contracts.reasons import PendingReason
from libs.testing.core_case import CoreCase, arrival, node, only
from services.admission.service import SERVICE


def case_with(*nodes: object) -> CoreCase:
    case = CoreCase(SERVICE)
    for joined in nodes:
        case.give(joined)  # type: ignore[arg-type]
    return case


def test_a_job_that_fits_the_empty_cluster_is_admitted():
    case = case_with(node("n1", 4), node("n2", 4))
    assert [type(e) for e in case.give(arrival("a", 8))] == [JobAdmitted]


def test_a_job_larger_than_the_cluster_is_rejected_with_the_numbers():
    rejected = only(case_with(node("n1", 4)).give(arrival("a", 5)), JobRejected)
    assert rejected.reason.code == PendingReason.NEVER_FITS
    assert rejected.reason.numbers == {"gpus": 5, "largest_gang_gpus": 4}


def test_gpus_of_different_types_do_not_make_one_gang():
    case = case_with(node("n1", 4, gpu_type="v100"), node("n2", 4, gpu_type="k80"))
    assert [type(e) for e in case.give(arrival("a", 8))] == [JobRejected]


def test_a_gang_bound_to_one_node_must_fit_one_node():
    case = case_with(node("n1", 4), node("n2", 4))
    assert [type(e) for e in case.give(arrival("a", GpuRequest(count=5, max_nodes=1)))] == [JobRejected]


def test_an_unknown_gpu_type_is_named_beside_those_that_exist():
    rejected = only(case_with(node("n1", 4)).give(arrival("a", GpuRequest(count=1, types=["h100"]))), JobRejected)
    assert "h100" in rejected.reason.message and "v100" in rejected.reason.message


def test_a_job_above_its_tenants_limit_could_never_be_granted():
    case = case_with(node("n1", 8), TenantConfigured(tenant="default", gpu_limit=2, requested_by="op"))
    assert only(case.give(arrival("a", 4)), JobRejected).reason.code == PendingReason.EXCEEDS_QUOTA


@pytest.mark.parametrize(
    ("share", "largest"),
    [({"per_user": {"any": 3}}, 3), ({"limits": {"v100": 2}}, 2), ({"parent": "top"}, 4), ({"limits": {"k80": 1}}, 4)],
)
def test_a_job_above_another_limit_could_never_be_granted_either(share: dict[str, Any], largest: int):
    case = case_with(
        node("n1", 8),
        TenantConfigured(tenant="top", gpu_limit=4, requested_by="op"),
        TenantConfigured(tenant="default", gpu_limit=None, requested_by="op", **{"parent": "top", **share}),
    )
    assert only(case.give(arrival("a", GpuRequest(count=largest, types=["v100"]))), JobAdmitted)
    assert only(case.give(arrival("b", GpuRequest(count=largest + 1, types=["v100"]))), JobRejected)


def test_nothing_is_judged_before_the_first_node_has_joined():
    case = CoreCase(SERVICE)
    assert case.give(arrival("a", 2)) == []
    assert case.give(arrival("b", 9)) == []
    assert [(type(e), e.job_id) for e in case.give(node("n1", 4))] == [(JobAdmitted, "a"), (JobRejected, "b")]


def test_a_lost_node_is_expected_back_but_one_that_left_is_not():
    case = case_with(node("n1", 2), node("n2", 4))
    case.give(NodeLost(node_id="n2", silent_s=20.0, incarnation=1))
    assert [type(e) for e in case.give(arrival("a", 4))] == [JobAdmitted]
    case.give(NodeLeft(node_id="n2", incarnation=1))
    assert [type(e) for e in case.give(arrival("b", 4))] == [JobRejected]


def test_sizes_are_those_of_the_nodes_that_are_there_now():
    case = case_with(node("n1", 4), node("n2", 4), node("n3", 8, gpu_type="k80"))
    case.give(arrival("a", 8))
    assert case.replica.state.sizes == {"v100": {4: 2}, "k80": {8: 1}}
    case.give(node("n1", 2))
    case.give(NodeLeft(node_id="n3", incarnation=1))
    assert case.replica.state.sizes == {"v100": {2: 1, 4: 1}}


def test_the_best_nodes_that_a_gang_may_have_count():
    nodes = [node("n1", 2), node("n2", 4), node("n3", 4), node("n4", 8)]
    verdicts = [case_with(*nodes).give(arrival("a", GpuRequest(count=13, max_nodes=most)))[0] for most in (2, 3, None)]
    assert [(type(each), each.reason.numbers["largest_gang_gpus"]) for each in verdicts] == [
        (JobRejected, 12),
        (JobAdmitted, 16),
        (JobAdmitted, 18),
    ]


def test_a_job_must_find_what_it_asks_for_beside_its_gpus():
    nodes = (node("n1", 8, cpus=64, memory_bytes=512 << 30), node("n2", 8, cpus=16, memory_bytes=64 << 30))
    case = case_with(*nodes)
    assert [type(e) for e in case.give(arrival("a", 8, cpus=8))] == [JobAdmitted]
    assert [type(e) for e in case.give(arrival("b", 10, cpus=8))] == [JobAdmitted]
    reason = only(case.give(arrival("c", 8, cpus=16)), JobRejected).reason
    assert (reason.code, reason.numbers) == (PendingReason.NEVER_FITS, {"gpus": 8, "largest_gang_gpus": 5})
    assert reason.message == (
        "8 GPUs of one type with 16 CPUs each asked for; the whole cluster has 5 v100 with as many CPUs beside them"
    )
    assert [type(e) for e in case.give(arrival("d", 1, memory_bytes=1 << 40))] == [JobRejected]
    case.give(NodeLeft(node_id="n1", incarnation=1))
    assert [type(e) for e in case.give(arrival("e", 8, cpus=8))] == [JobRejected]


def test_a_job_must_find_both_on_the_same_nodes():
    case = case_with(node("n1", 4, cpus=8, features=["data:imagenet"]), node("n2", 4, cpus=64))
    assert [type(e) for e in case.give(arrival("a", 2, cpus=4, mounts={"imagenet": ""}))] == [JobAdmitted]
    reason = only(case.give(arrival("b", 4, cpus=4, mounts={"imagenet": ""})), JobRejected).reason
    assert (reason.code, reason.message) == (
        PendingReason.NEVER_FITS,
        "4 GPUs of one type with 4 CPUs each asked for; "
        "the whole cluster has 2 v100 with as many CPUs beside them on nodes with data imagenet",
    )


def test_a_job_must_fit_the_nodes_that_have_what_else_it_needs():
    case = case_with(node("n1", 4), node("n2", 2, features=["data:imagenet", "images"]))
    assert [type(e) for e in case.give(arrival("a", 2, image="ubuntu", mounts={"imagenet": "/data"}))] == [JobAdmitted]
    rejected = only(case.give(arrival("b", 3, image="ubuntu")), JobRejected)
    assert rejected.reason.code == PendingReason.NEVER_FITS
    assert rejected.reason.message.endswith("the whole cluster has 2 v100 on nodes with a runner of container images")
    rejected = only(case.give(arrival("c", 1, mounts={"coco": ""})), JobRejected)
    assert (rejected.reason.code, rejected.reason.message) == (PendingReason.NEVER_FITS, "no node has data coco")
    case.give(NodeLeft(node_id="n2", incarnation=1, note=""))
    assert only(case.give(arrival("d", 1, image="ubuntu")), JobRejected).reason.code == PendingReason.NEVER_FITS


@pytest.mark.parametrize(
    ("job_class", "guests", "admitted"),
    [
        (JobClass.GUARANTEED, "antman", False),
        (JobClass.AUTOMATIC, "antman", True),
        (JobClass.AUTOMATIC, "none", False),
        (JobClass.OPPORTUNISTIC, "none", True),
    ],
)
def test_a_limit_binds_jobs_that_need_quota(job_class, guests, admitted):
    case = case_with(
        node("n1", 8),
        TenantConfigured(tenant="default", gpu_limit=2, requested_by="op"),
        PolicyChanged(policy="backfill", requested_by="op", guests=guests),
    )
    said = case.give(arrival("j", 4, job_class=job_class))
    only(said, JobAdmitted if admitted else JobRejected)


def test_a_job_must_fit_outside_the_pool_for_trials():
    case = case_with(node("n1", 4), node("p1", 8, features=[pool(TRIALS)]))
    assert only(case.give(arrival("a", 4)), JobAdmitted)
    assert only(case.give(arrival("b", 8)), JobRejected).reason.numbers["largest_gang_gpus"] == 4


def test_a_node_that_is_set_apart_from_its_next_start_on_counts_no_more():
    case = case_with(node("n1", 4), node("n2", 8))
    case.give(node("n2", 8, incarnation=2, features=[pool(TRIALS)]))
    assert only(case.give(arrival("a", 8)), JobRejected)
