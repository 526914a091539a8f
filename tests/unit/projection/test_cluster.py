"""What users see of nodes, GPUs, tenants and settings, and that every event is kept."""

from __future__ import annotations

from libs.contracts.agent import GpuRecovered, GpuUnhealthy, NodeErrorsLogged, NodeLeft
from libs.contracts.gateway import (
    NodeDrainRequested,
    NodeUndrainRequested,
    PolicyChanged,
    SettingChanged,
    TenantConfigured,
)
from libs.contracts.introspection import NodeLost
from libs.contracts.migration import NodeDrained
from libs.contracts.read_models import EventRow, GpuRow, NodeState, SettingRow
from libs.testing.core_case import arrival, node
from services.projection.core import HANDLERS, Rows
from tests.unit.projection.story import Story


def gpu(story: Story, gpu_id: str) -> GpuRow:
    row = story.rows.get(GpuRow, gpu_id)
    assert row is not None
    return row


def test_a_node_drains_and_comes_back() -> None:
    story = Story().two_nodes().says(NodeDrainRequested(node_id="n1", note="ECC", requested_by="op"))
    assert (story.node().state, story.node().note) == (NodeState.DRAINING, "ECC")
    story.says(NodeDrained(node_id="n1", moved_jobs=2))
    assert story.node().state is NodeState.DRAINED
    story.says(NodeDrainRequested(node_id="n1", note="ECC, still", requested_by="op"))
    assert (story.node().state, story.node().note) == (NodeState.DRAINED, "ECC, still"), "it is empty as before"
    story.says(node("n1", 2, incarnation=2))
    assert story.node().state is NodeState.DRAINED, "a restart does not end a drain"
    story.says(NodeUndrainRequested(node_id="n1", requested_by="op"))
    assert (story.node().state, story.node().note) == (NodeState.UP, "")


def test_a_lost_node_comes_back_by_joining() -> None:
    story = Story().two_nodes().says(NodeLost(node_id="n1", silent_s=12.0, incarnation=1))
    assert (story.node().state, story.node().note) == (NodeState.LOST, "silent for 12.0 s")
    story.says(node("n1", 2, incarnation=2), NodeLost(node_id="n1", silent_s=12.0, incarnation=1))
    assert story.node().state is NodeState.UP, "the loss of an older incarnation is old news"
    story.says(NodeLeft(node_id="n1", incarnation=2, note="maintenance"))
    assert (story.node().state, story.node().note) == (NodeState.LEFT, "maintenance")


def test_a_node_may_come_back_with_other_gpus() -> None:
    story = Story().two_nodes().says(node("n1", 1, gpu_type="a100", incarnation=2))
    assert [(gpu(story, f"n1:{i}").gpu_type, gpu(story, f"n1:{i}").present) for i in range(2)] == [
        ("a100", True),
        ("v100", False),
    ]


def test_an_unhealthy_gpu_says_why() -> None:
    story = Story().two_nodes().says(GpuUnhealthy(node_id="n1", index=1, note="Xid 79"))
    assert (gpu(story, "n1:1").healthy, gpu(story, "n1:1").note) == (False, "Xid 79")
    story.says(GpuRecovered(node_id="n1", index=1))
    assert (gpu(story, "n1:1").healthy, gpu(story, "n1:1").note) == (True, "")


def test_what_concerns_an_unknown_node_changes_nothing() -> None:
    story = Story().says(
        NodeDrainRequested(node_id="n9", note="?", requested_by="op"),
        NodeLost(node_id="n9", silent_s=1.0, incarnation=1),
        GpuUnhealthy(node_id="n9", index=0, note="?"),
    )
    assert story.rows.all(GpuRow) == []


def test_a_tenant_is_known_from_its_first_job_or_its_configuration() -> None:
    story = Story().says(arrival("j", 2, tenant="vision"))
    assert (story.tenant().configured, story.tenant().gpu_limit) == (False, None)
    story.says(TenantConfigured(tenant="vision", gpu_limit=8, requested_by="op", weight=2.0))
    assert (story.tenant().configured, story.tenant().gpu_limit, story.tenant().weight) == (True, 8, 2.0)
    assert (story.tenant().on_stall, story.tenant().on_divergence, story.tenant().on_idle) == ("tell", "tell", "tell")
    story.says(TenantConfigured(tenant="vision", gpu_limit=8, requested_by="op", on_stall="stop"))
    story.says(TenantConfigured(tenant="vision", gpu_limit=4, requested_by="op", on_idle="requeue"))
    assert (story.tenant().on_stall, story.tenant().on_divergence, story.tenant().on_idle) == (
        "stop",
        "tell",
        "requeue",
    )


def test_settings_and_the_policy_are_kept_with_their_author() -> None:
    story = Story().says(
        PolicyChanged(policy="strict_fifo", requested_by="op", note="RFC 12"),
        SettingChanged(service="placement", name="locality_relax_s", value=5.0, requested_by="op"),
        SettingChanged(service="placement", name="locality_relax_s", value=9.0, requested_by="op"),
    )
    assert [(row.name, row.value, row.changed_by) for row in story.rows.all(SettingRow)] == [
        ("policy", "strict_fifo", "op"),
        ("guests", "none", "op"),
        ("locality_relax_s", 9.0, "op"),
    ]


def test_every_event_is_kept_with_what_it_is_about() -> None:
    story = Story().running()
    kept = story.rows.all(EventRow)
    assert [row.log_offset for row in kept] == list(range(story.offset))
    first_start = next(row for row in kept if row.type == "job.started.v1")
    assert (first_start.job_id, first_start.node_id, first_start.data["pid"]) == ("j", "n1", 1)


def test_rows_are_loaded_once_and_together() -> None:
    asked: list[list[tuple[object, ...]]] = []

    def load(row_type: object, keys: list[tuple[object, ...]]) -> list[GpuRow]:
        asked.append(keys)
        return [GpuRow(id="n1:0", node_id="n1", gpu_index=0, gpu_type="v100", memory_bytes=1)]

    rows = Rows(load)
    assert [row.id for row in rows.fetch(GpuRow, [("n1:1",), ("n1:0",)])] == ["n1:0"]
    assert rows.get(GpuRow, "n1:1") is None
    assert asked == [[("n1:1",), ("n1:0",)]]
    assert list(rows.changed()) == []
    assert HANDLERS


def test_stored_rows_stay_known_until_there_are_too_many() -> None:
    asked: list[list[tuple[object, ...]]] = []

    def load(row_type: object, keys: list[tuple[object, ...]]) -> list[GpuRow]:
        asked.append(keys)
        return []

    rows = Rows(load)
    rows.put(GpuRow(id="n1:0", node_id="n1", gpu_index=0, gpu_type="v100", memory_bytes=1))
    rows.stored(most=1)
    assert list(rows.changed()) == [] and rows.get(GpuRow, "n1:0") is not None
    assert rows.get(GpuRow, "n1:1") is None and asked == [[("n1:1",)]]
    rows.stored(most=1)
    assert rows.get(GpuRow, "n1:0") is None and asked[1:] == [[("n1:0",)]]


def test_the_errors_of_an_agent_are_those_since_its_start() -> None:
    story = Story().two_nodes().says(NodeErrorsLogged(node_id="n1", incarnation=1, errors=2, last="OSError: full"))
    assert (story.node().errors, story.node().last_error) == (2, "OSError: full")
    story.says(node("n1", 2, incarnation=2))
    assert (story.node().errors, story.node().last_error) == (0, "")
    story.says(NodeErrorsLogged(node_id="n1", incarnation=1, errors=3, last="late"))
    assert story.node().errors == 0
