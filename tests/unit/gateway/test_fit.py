"""The dry run: what would become of a job."""

from __future__ import annotations

import pytest

from libs.contracts.cluster import TaskPlacement
from libs.contracts.features import TRIALS, pool
from libs.contracts.gateway import NodeDrainRequested, TenantConfigured
from libs.contracts.jobs import GpuRequest, JobClass, JobSpec
from libs.contracts.placement import JobPlaced
from libs.contracts.read_models import GpuRow, JobRow, NodeRow, TenantRow
from libs.testing.core_case import arrival, node
from services.gateway.core.fit import Fit, fit
from tests.unit.projection.story import Story, placed


def plan(story: Story, gpus: int | GpuRequest = 1, ahead: int = 0) -> Fit:
    request = gpus if isinstance(gpus, GpuRequest) else GpuRequest(count=gpus)
    spec = JobSpec(name="x", command=["x"], gpus=request, tenant="vision")
    tenant = story.rows.get(TenantRow, "vision")
    return fit(spec, story.rows.all(NodeRow), story.rows.all(GpuRow), tenant, ahead)


def cluster() -> Story:
    return Story().says(node("n1", 2), node("n2", 4), node("n3", 8, gpu_type="a100"))


def test_without_nodes_nothing_can_be_said() -> None:
    assert plan(Story()).verdict == "unknown"


def test_the_fullest_server_that_holds_the_gang_is_taken() -> None:
    assert plan(cluster(), GpuRequest(count=2, types=["v100"])).where == {"n1": 2}
    assert plan(cluster(), GpuRequest(count=3, types=["v100"])).where == {"n2": 3}


def test_a_gang_is_spread_over_the_fewest_servers() -> None:
    assert plan(cluster(), GpuRequest(count=6, types=["v100"])).where == {"n2": 4, "n1": 2}


@pytest.mark.parametrize(
    ("request_", "verdict", "reason"),
    [
        (GpuRequest(count=9), "rejected", "NeverFits"),
        (GpuRequest(count=1, types=["k80"]), "rejected", "NeverFits"),
        (GpuRequest(count=8, excluded_types=["a100"]), "rejected", "NeverFits"),
        (GpuRequest(count=6, types=["v100"], max_nodes=1), "rejected", "NeverFits"),
        (GpuRequest(count=8), "starts", "Fits"),
    ],
)
def test_what_never_fits_volcano_1295(request_: GpuRequest, verdict: str, reason: str) -> None:
    """Volcano #1295: a job larger than any node waited for ever. Here the dry run says so, and admission rejects it."""
    found = plan(cluster(), request_)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_what_is_in_use_is_waited_for() -> None:
    story = Story().two_nodes().granted().says(placed())
    assert (plan(story, 2).verdict, plan(story, 2).where) == ("starts", {"n1": 1, "n2": 1})
    found = plan(story, 3)
    assert (found.verdict, found.reason, found.numbers["free_gpus"]) == ("waits", "InsufficientGpus", 2)
    whole = plan(story, GpuRequest(count=2, max_nodes=1))
    assert (whole.verdict, whole.reason) == ("waits", "GangFragmented")


def test_the_job_ahead_goes_first() -> None:
    found = plan(cluster(), 1, ahead=3)
    assert (found.verdict, found.reason, found.numbers["queued_ahead"]) == ("waits", "Behind", 3)


def test_a_draining_node_counts_for_later_only() -> None:
    story = Story().two_nodes().says(NodeDrainRequested(node_id="n1", note="ECC", requested_by="op"))
    assert plan(story, 2).where == {"n2": 2}
    assert plan(story, 4).verdict == "waits"


@pytest.mark.parametrize(("limit", "verdict"), [(1, "rejected"), (3, "waits"), (4, "starts"), (None, "starts")])
def test_the_tenants_limit(limit: int | None, verdict: str) -> None:
    story = Story().two_nodes().granted().says(placed())
    story.says(TenantConfigured(tenant="vision", gpu_limit=limit, requested_by="op"))
    assert plan(story, 2).verdict == verdict


@pytest.mark.parametrize(
    ("job_class", "gpus", "guests", "verdict"),
    [
        (JobClass.GUARANTEED, 4, True, "rejected"),
        (JobClass.GUARANTEED, 2, True, "waits"),
        (JobClass.AUTOMATIC, 4, False, "rejected"),
        (JobClass.AUTOMATIC, 4, True, "starts"),
        (JobClass.AUTOMATIC, 2, True, "waits"),
        (JobClass.OPPORTUNISTIC, 4, True, "starts"),
        (JobClass.OPPORTUNISTIC, 2, False, "starts"),
    ],
)
def test_the_tenants_limit_is_about_jobs_that_need_quota(
    job_class: JobClass, gpus: int, guests: bool, verdict: str
) -> None:
    story = cluster().says(TenantConfigured(tenant="vision", gpu_limit=3, requested_by="op")).granted()
    spec = JobSpec(name="x", command=["x"], gpus=GpuRequest(count=gpus), tenant="vision", job_class=job_class)
    rows = story.rows
    found = fit(spec, rows.all(NodeRow), rows.all(GpuRow), story.tenant(), 0, guests=guests)
    assert found.verdict == verdict
    if verdict == "rejected":
        assert found.message == "4 GPUs asked for, tenant vision may use 3 GPUs"


def test_gpus_count_that_have_what_a_job_asks_for_beside_them() -> None:
    story = Story().says(node("n1", 4, cpus=16, memory_bytes=64 << 30), node("n2", 4, cpus=64, memory_bytes=256 << 30))

    def of(gpus: int, **host: int) -> Fit:
        spec = JobSpec(name="x", command=["x"], gpus=GpuRequest(count=gpus), **host)
        rows = story.rows
        asking = [job for job in rows.all(JobRow) if job.is_host_bound]
        return fit(spec, rows.all(NodeRow), rows.all(GpuRow), None, 0, asking)

    assert of(2, cpus=16).where == {"n2": 2}
    assert of(6, cpus=8).where == {"n2": 4, "n1": 2}
    never = of(6, cpus=16)
    assert (never.verdict, never.reason) == ("rejected", "NeverFits")
    assert never.message == "6 GPUs with 16 CPUs each asked for, a gang can have 5 with as many CPUs beside them"
    gang = [TaskPlacement(node_id="n2", gpu_indices=[0], first_rank=0)]
    story.says(
        arrival("big", 1, cpus=60, memory_bytes=200 << 30),
        JobPlaced(job_id="big", attempt=1, gang=gang, reason=placed().reason),
    )
    later = of(2, cpus=16)
    assert (later.verdict, later.reason) == ("waits", "InsufficientCpus")
    assert later.message == "2 GPUs with 16 CPUs each asked for; GPUs are free, but not enough beside them"
    assert of(1, memory_bytes=128 << 30).reason == "InsufficientMemory"


def test_only_nodes_that_have_what_else_a_job_needs_count() -> None:
    story = Story().says(node("n1", 4), node("n2", 2, features=["images"]))
    rows = story.rows

    def found(gpus: int, **fields: object) -> Fit:
        spec = JobSpec(name="x", command=["x"], gpus=GpuRequest(count=gpus), **fields)  # type: ignore[arg-type]
        return fit(spec, rows.all(NodeRow), rows.all(GpuRow), None, 0)

    assert found(1, image="ubuntu").where == {"n2": 1}
    assert found(3, image="ubuntu").verdict == "rejected"
    lacking = found(1, mounts={"coco": ""})
    assert (lacking.verdict, lacking.reason, lacking.message) == ("rejected", "NeverFits", "no node has data coco")


def test_the_features_and_what_is_beside_the_gpus_count_on_the_same_nodes() -> None:
    story = Story().says(node("n1", 4, cpus=8, features=["data:coco"]), node("n2", 4, cpus=64))

    def found(gpus: int) -> Fit:
        spec = JobSpec(name="x", command=["x"], gpus=GpuRequest(count=gpus), cpus=4, mounts={"coco": ""})
        return fit(spec, story.rows.all(NodeRow), story.rows.all(GpuRow), None, 0)

    assert found(2).where == {"n1": 2}
    never = found(3)
    assert (never.verdict, never.reason) == ("rejected", "NeverFits")
    assert never.message == (
        "3 GPUs with 4 CPUs each asked for, a gang can have 2 with as many CPUs beside them on nodes with data coco"
    )


def test_a_job_does_not_fit_the_pool_for_trials() -> None:
    apart = node("p1", 8, features=[pool(TRIALS)])
    assert plan(Story().says(node("n1", 2), apart), 4).verdict == "rejected"
    assert plan(Story().says(node("n1", 4), apart), 4).where == {"n1": 4}
    found = plan(Story().says(apart), 1)
    assert (found.verdict, found.message) == ("unknown", "no node for jobs has joined the cell yet")
