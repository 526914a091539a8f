"""Arrays and DAGs become jobs, and what is asked of the whole is asked of each."""

from __future__ import annotations

from libs.contracts.gateway import (
    ArrayArrived,
    DagArrived,
    GroupChangeRequested,
    JobArrived,
    JobCancelRequested,
    JobPauseRequested,
    JobPriorityChanged,
    JobResumeRequested,
)
from libs.contracts.groups import Dependency, GroupChange, GroupMember, GroupPlace
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.placement import JobSucceeded
from libs.kernel.ids import member_id
from libs.testing.core_case import CoreCase
from services.sweeps.service import SERVICE

SPEC = JobSpec(name="train", command=["python", "train.py"], gpus=GpuRequest(count=1), env={"A": "b"}, priority=3)


def case_with_array(*indices: int) -> CoreCase:
    case = CoreCase(SERVICE)
    after = [Dependency(on="j-first")]
    case.give(
        ArrayArrived(group_id="a-1", spec=SPEC, indices=list(indices), at_once=2, after=after, submitted_by="ada")
    )
    return case


def test_an_array_becomes_a_job_per_index_that_knows_its_own():
    jobs = case_with_array(1, 3, 7).decided(JobArrived)
    assert [job.spec.name for job in jobs] == ["train[1]", "train[3]", "train[7]"]
    assert [job.group for job in jobs] == [GroupPlace(group_id="a-1", index=index) for index in (1, 3, 7)]
    assert len({job.job_id for job in jobs}) == 3 and jobs[0].after == [Dependency(on="j-first")]
    assert jobs[2].spec.priority == 3 and jobs[2].spec.env == {
        "A": "b",
        "SANJAYA_ARRAY_ID": "a-1",
        "SANJAYA_ARRAY_INDEX": "7",
        "SANJAYA_ARRAY_SIZE": "3",
        "SLURM_ARRAY_JOB_ID": "a-1",
        "SLURM_ARRAY_TASK_ID": "7",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "7",
    }


def test_a_dag_becomes_its_jobs_in_order():
    case = CoreCase(SERVICE)
    first, second = member_id("d-1", "prepare"), member_id("d-1", "train")
    members = [
        GroupMember(job_id=first, spec=SPEC),
        GroupMember(job_id=second, spec=SPEC, after=[Dependency(on=first)]),
    ]
    case.give(DagArrived(group_id="d-1", name="pipeline", jobs=members, submitted_by="ada"))
    jobs = case.decided(JobArrived)
    assert [job.job_id for job in jobs] == [first, second]
    assert jobs[1].after == [Dependency(on=first)] and jobs[1].group == GroupPlace(group_id="d-1", index=1)


def test_what_is_asked_of_an_array_is_asked_of_each_job_that_has_not_ended():
    case = case_with_array(0, 1, 2)
    ids = [job.job_id for job in case.decided(JobArrived)]
    case.give(JobSucceeded(job_id=ids[1], attempt=1))
    for change, kind in (
        (GroupChange.PAUSE, JobPauseRequested),
        (GroupChange.RESUME, JobResumeRequested),
        (GroupChange.PRIORITY, JobPriorityChanged),
        (GroupChange.CANCEL, JobCancelRequested),
    ):
        asked = case.give(GroupChangeRequested(group_id="a-1", change=change, requested_by="ada", priority=9))
        assert [(type(event), event.subject) for event in asked] == [(kind, ids[0]), (kind, ids[2])]
    assert {event.priority for event in case.decided(JobPriorityChanged)} == {9}


def test_an_array_that_is_over_is_forgotten():
    case = case_with_array(0, 1)
    for job in case.decided(JobArrived):
        case.give(JobSucceeded(job_id=job.job_id, attempt=1))
    assert case.replica.state.groups == {} == case.replica.state.group_of
    assert case.give(GroupChangeRequested(group_id="a-1", change=GroupChange.CANCEL, requested_by="ada")) == []
