"""Arrays and DAGs in the read models."""

from __future__ import annotations

import msgspec

from libs.contracts.admission import JobHeldBack
from libs.contracts.gateway import ArrayArrived, DagArrived
from libs.contracts.groups import Dependency, GroupMember, GroupPlace
from libs.contracts.read_models import GroupRow
from libs.testing.core_case import arrival
from tests.unit.projection.story import Story, reason

SPEC = arrival("train", tenant="vision", user="ada").spec


def member(job_id: str, group_id: str, index: int):
    return msgspec.structs.replace(arrival(job_id), group=GroupPlace(group_id=group_id, index=index))


def test_an_array_has_a_row_and_its_first_job_stands_for_it():
    story = Story().says(
        ArrayArrived(group_id="a-1", spec=SPEC, indices=[3, 5], at_once=1, submitted_by="ada"),
        member("x", "a-1", 3),
        member("y", "a-1", 5),
    )
    row = story.rows.get(GroupRow, "a-1")
    assert row is not None
    assert (row.kind, row.name, row.tenant, row.user_name) == ("array", "train", "vision", "ada")
    assert (row.size, row.first_index, row.at_once, row.arrived_offset) == (2, 3, 1, 0)
    x, y = story.job("x"), story.job("y")
    assert (x.group_id, x.group_index, x.leads_group) == ("a-1", 3, True)
    assert (y.group_id, y.group_index, y.leads_group) == ("a-1", 5, False)


def test_a_dag_has_a_row():
    jobs = [GroupMember(job_id="x", spec=SPEC), GroupMember(job_id="y", spec=SPEC, after=[Dependency(on="x")])]
    story = Story().says(DagArrived(group_id="d-1", name="all", jobs=jobs, submitted_by="ada"), member("x", "d-1", 0))
    row = story.rows.get(GroupRow, "d-1")
    assert row is not None and (row.kind, row.name, row.size, row.tenant) == ("dag", "all", 2, "vision")
    assert story.job("x").leads_group


def test_a_job_that_is_held_back_says_for_what_it_waits():
    story = Story().says(msgspec.structs.replace(arrival("x"), after=[Dependency(on="y")]))
    story.says(JobHeldBack(job_id="x", reason=reason("DependencyNotMet", "waits for y to succeed")))
    job = story.job("x")
    assert (job.state, job.reason, job.message) == ("QUEUED", "DependencyNotMet", "waits for y to succeed")
    assert job.after == [{"on": "y", "condition": "ok", "succeeded": None}]
    assert job.group_id is None and not job.leads_group
