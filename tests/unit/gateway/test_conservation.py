"""The light turns red when something is not accounted for, and says what."""

from __future__ import annotations

import pytest

from libs.contracts.cluster import TaskPlacement
from libs.contracts.placement import JobPlaced, JobSucceeded
from libs.contracts.read_models import FINAL_STATES, GpuRow, JobRow, NodeRow, TenantRow
from libs.testing.core_case import arrival, node
from services.gateway.core.conservation import Counts, Law, check
from tests.unit.projection.story import Story, exited, placed

OTHER = [TaskPlacement(node_id="n1", gpu_indices=[1], first_rank=0)]


def judge(story: Story, *, arrived: int | None = None, ended: int | None = None) -> dict[str, Law]:
    """The laws over the rows of a story."""
    jobs = story.rows.all(JobRow)
    by_state: dict[str, int] = {}
    for job in jobs:
        by_state[job.state.value] = by_state.get(job.state.value, 0) + 1
    final = sum(count for state, count in by_state.items() if state in FINAL_STATES)
    counts = Counts(len(jobs) if arrived is None else arrived, final if ended is None else ended, by_state)
    live = [job for job in jobs if job.state not in FINAL_STATES]
    asking = [job for job in live if job.is_host_bound]
    laws = check(live, story.rows.all(GpuRow), story.rows.all(TenantRow), counts, story.rows.all(NodeRow), asking)
    return {law.name: law for law in laws}


def broken(laws: dict[str, Law]) -> list[str]:
    return [violation for law in laws.values() for violation in law.violations]


def gpu(story: Story, gpu_id: str) -> GpuRow:
    row = story.rows.get(GpuRow, gpu_id)
    assert row is not None
    return row


def test_everything_is_accounted_for_in_every_moment_of_a_story() -> None:
    story = Story().running().says(arrival("k", 1), exited("n1"), exited("n2"), JobSucceeded(job_id="j", attempt=1))
    again = Story()
    for record in story.records:
        again.says(record.envelope.event)
        laws = judge(again)
        assert all(law.holds for law in laws.values()), broken(laws)


def test_an_empty_cell_is_in_order() -> None:
    assert broken(judge(Story())) == []


def test_a_gpu_held_by_a_job_that_has_ended_is_seen() -> None:
    story = Story().running().says(exited("n1"), exited("n2"), JobSucceeded(job_id="j", attempt=1))
    gpu(story, "n1:0").job_id = "j"
    assert broken(judge(story)) == ["GPU n1:0 is held by j, which has ended or never was"]


def test_a_gpu_that_two_jobs_were_given_is_seen() -> None:
    story = Story().running()
    gpu(story, "n1:1").job_id = "j"
    assert "GPU n1:1 is held by j, which was given n1:0, n2:0" in broken(judge(story))


def test_a_job_without_its_gpus_is_seen() -> None:
    story = Story().running()
    gpu(story, "n2:0").job_id = None
    assert broken(judge(story)) == ["job j should hold n1:0, n2:0 and holds n1:0"]


def test_a_gpu_of_an_older_attempt_is_seen() -> None:
    story = Story().running()
    gpu(story, "n1:0").attempt = 7
    assert broken(judge(story)) == ["GPU n1:0 is held by attempt 7 of j, which is at attempt 1"]


def test_quota_held_by_nothing_is_seen_kueue_14811() -> None:
    """Kueue #14811: quota was held for hours by workloads that were gone."""
    story = Story().running()
    story.tenant().granted_gpus = 5
    assert broken(judge(story)) == ["tenant vision is charged 5 GPUs, its jobs were granted 2"]


@pytest.mark.parametrize(
    ("arrived", "ended", "says"),
    [(3, 0, "3 jobs have arrived, 1 is known"), (1, 1, "0 jobs have ended, 1 end is on the log")],
)
def test_lost_and_doubled_jobs_are_seen(arrived: int, ended: int, says: str) -> None:
    assert says in broken(judge(Story().granted(), arrived=arrived, ended=ended))


def test_a_job_that_is_left_standing_turns_the_light_red() -> None:
    story = Story().running()
    story.job().notices["JobStuck"] = "it has been told to start on n2, and has neither started nor failed"
    law = judge(story)["no job is left standing"]
    assert not law.holds
    assert law.violations == ["job j is stuck: it has been told to start on n2, and has neither started nor failed"]


def test_an_unknown_state_is_seen() -> None:
    laws = check([], [], [], Counts(1, 0, {"LIMBO": 1}))
    assert "unknown states: LIMBO" in laws[0].violations


def test_many_violations_are_summed_up() -> None:
    story = Story().two_nodes().says()
    for row in story.rows.all(GpuRow):
        row.job_id = "gone"
    extra = [
        GpuRow(id=f"n3:{i}", node_id="n3", gpu_index=i, gpu_type="v100", memory_bytes=1, job_id="gone")
        for i in range(4)
    ]
    laws = check([], [*story.rows.all(GpuRow), *extra], [], Counts(0, 0, {}))
    assert laws[2].violations[-1] == "and 3 more"


def test_a_node_that_promises_more_than_it_has_turns_the_light_red() -> None:
    story = Story().says(node("n1", 2, cpus=8, memory_bytes=8 << 30), node("n2", 2, cpus=8, memory_bytes=8 << 30))
    story.says(arrival("k", 2, cpus=8, memory_bytes=8 << 30), placed("k"))
    assert broken(judge(story)) == []
    story.says(arrival("l", 1, cpus=1), JobPlaced(job_id="l", attempt=1, gang=OTHER, reason=placed().reason))
    assert broken(judge(story)) == ["node n1 has 8 CPUs, its jobs are promised 9"]
