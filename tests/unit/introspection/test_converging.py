"""Jobs whose loss improves no more: told, or stopped where they asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.agent import MetricsReported
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.gateway import JobArrived, JobCancelRequested, SettingChanged
from libs.contracts.introspection import JobConverged
from libs.contracts.jobs import GpuRequest, JobSpec
from libs.contracts.placement import JobCancelled, JobPlaced, JobQueued
from libs.contracts.reasons import Reason
from libs.testing.core_case import CoreCase, only
from services.introspection.service import SERVICE

WHY = Reason(code="Test", message="test")


class Training(CoreCase):
    """Job `a` on two GPUs from 0 s on; an epoch takes ten seconds."""

    def __init__(self, **wishes: Any) -> None:
        super().__init__(SERVICE)
        spec = JobSpec(name="a", command=["true"], gpus=GpuRequest(count=2), **wishes)
        self.give(JobArrived(job_id="a", spec=spec, submitted_by="u"), at=0.0)
        self.place(1)

    def place(self, attempt: int) -> None:
        gang = [TaskPlacement(node_id="n1", gpu_indices=[0, 1], first_rank=0)]
        self.give(JobPlaced(job_id="a", attempt=attempt, gang=gang, reason=WHY))

    def report(self, epoch: int, loss: float, *, attempt: int = 1, name: str = "loss") -> list[Event]:
        values = {name: loss, "accuracy": 0.5}
        return self.give(
            MetricsReported(job_id="a", attempt=attempt, node_id="n1", step=epoch, values=values), at=self.now_s + 10
        )

    def reports(self, *losses: float) -> list[Event]:
        return [event for epoch, loss in enumerate(losses, 1) for event in self.report(epoch, loss)]


FLAT = (4.0, 2.0, 1.0005, 1.0, 1.2, 1.0)


def test_a_job_that_asked_is_told_once_with_what_it_has_cost_since():
    training = Training(when_converged="tell", converge_epochs=3)
    fact = only(training.reports(*FLAT), JobConverged)
    assert (fact.epoch, fact.best, fact.best_epoch, fact.converged_epoch) == (6, 1.0, 4, 3)
    assert (fact.gpu_s, fact.gpu_s_since) == (120.0, 60.0)
    assert fact.reason.numbers["unimproved_epochs"] == 3
    assert training.report(7, 1.0) == []


def test_a_job_that_asked_is_stopped_with_the_reason():
    training = Training(when_converged="stop", converge_epochs=3)
    converged, cancel = training.reports(*FLAT)
    assert isinstance(converged, JobConverged) and isinstance(cancel, JobCancelRequested)
    assert cancel.requested_by == "introspection" and converged.reason.message in cancel.note
    training.give(JobCancelled(job_id="a", attempt=1, reason=WHY))
    assert training.replica.state.followed == {}


def test_a_job_that_did_not_ask_is_neither_told_nor_stopped():
    assert Training(converge_epochs=3).reports(*FLAT) == []


@pytest.mark.parametrize(("epochs", "said"), [(4, 0), (2, 1)])
def test_the_setting_counts_where_the_job_says_no_number(epochs: int, said: int):
    training = Training(when_converged="tell")
    training.give(SettingChanged(service="introspection", name="converge_epochs", value=epochs, requested_by="op"))
    assert len(training.reports(*FLAT)) == said


def test_another_metric_and_another_ratio():
    training = Training(when_converged="tell", converge_epochs=2, converge_ratio=0.5, loss_metric="error")
    assert training.report(1, 8.0) == []
    said = [event for epoch in range(2, 5) for event in training.report(epoch, 8.0 - epoch, name="error")]
    fact = only(said, JobConverged)
    assert (fact.metric, fact.epoch, fact.best, fact.converged_epoch) == ("error", 4, 4.0, 2)


def test_gpu_time_is_counted_over_attempts_and_not_while_the_job_waits():
    training = Training(when_converged="tell", converge_epochs=2)
    training.reports(2.0, 1.0)
    training.give(JobQueued(job_id="a", attempt=2, reason=WHY))
    training.now_s += 1000
    training.place(2)
    assert training.report(3, 1.0) == []  # of the earlier attempt, late
    fact = only([*training.report(3, 1.0, attempt=2), *training.report(4, 1.0, attempt=2)], JobConverged)
    assert (fact.epoch, fact.converged_epoch, fact.gpu_s, fact.gpu_s_since) == (4, 2, 100.0, 60.0)
