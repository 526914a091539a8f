"""Which borrowers are victims first, and how: suspended, stopped with their work saved, begun anew."""

from __future__ import annotations

from libs.contracts.base import Event
from libs.contracts.gateway import PolicyChanged
from libs.contracts.jobs import JobClass
from libs.contracts.placement import AttemptFailed, JobQueued, JobSucceeded
from libs.contracts.quota import OpportunityGranted, QuotaDeferred, QuotaGranted, QuotaReclaimed
from libs.testing.core_case import only
from tests.unit.quota.test_virtual_clusters import SAID, Clusters


def under(policy: str, *, guests: str = "none") -> Clusters:
    """Tenant a has its 4 GPUs and has borrowed the 4 of tenant b: an old job that saves its work, and a young one."""
    case = Clusters(8, a=4, b=4)
    case.give(PolicyChanged(policy=policy, guests=guests, requested_by="op"))
    case.run("own", 4, "a")
    case.run("old", 2, "a", at=10.0, restartable=True)
    case.run("young", 2, "a", at=50.0)
    case.now_s = 60.0
    return case


def stands_still(case: Clusters, job_id: str) -> list[Event]:
    """A victim was suspended."""
    return case.give(JobQueued(job_id=job_id, attempt=1, reason=SAID, returns_to_quota=True, suspended=True))


def victims(case: Clusters) -> list[tuple[str, str, float]]:
    [reclaimed] = case.decided(QuotaReclaimed)
    return [(victim.job_id, victim.way, victim.lost_gpu_s) for victim in reclaimed.victims]


def test_without_suspension_those_that_save_their_work_go_first():
    case = under("backfill")
    case.submit("b1", 4, "b")
    assert victims(case) == [("old", "restart", 0.0), ("young", "preempt", 20.0)]


def test_with_time_slices_all_are_suspended_and_the_youngest_goes_first():
    case = under("gandiva")
    case.submit("b1", 4, "b")
    assert victims(case) == [("young", "suspend", 0.0), ("old", "suspend", 0.0)]


def test_with_shares_those_that_are_tied_to_their_servers_are_suspended_and_go_first():
    case = under("max_min_fairness")
    case.submit("b1", 4, "b")
    assert victims(case) == [("young", "suspend", 0.0), ("old", "restart", 0.0)]


def test_one_that_has_no_gpus_goes_before_all():
    case = Clusters(8, a=4, b=4)
    case.give(PolicyChanged(policy="gandiva", requested_by="op"))
    case.run("own", 4, "a")
    case.run("runs", 2, "a", at=50.0)
    case.submit("waits", 2, "a")
    case.submit("b1", 2, "b")
    assert victims(case) == [("waits", "", 0.0)]


def test_one_that_stands_still_is_granted_again_where_it_is():
    case = under("gandiva")
    case.submit("b1", 2, "b")
    granted = only(stands_still(case, "young"), QuotaGranted)
    assert (granted.job_id, granted.share) == ("b1", "guaranteed")
    assert only(case.all[-1:], QuotaDeferred).job_id == "young"
    again = only(case.succeed("b1"), QuotaGranted)
    assert (again.job_id, again.attempt, again.gpu_type) == ("young", 1, "v100")


def test_one_that_stands_still_does_not_become_a_guest():
    case = under("gandiva", guests="antman")
    case.submit("auto", 2, "b", job_class=JobClass.AUTOMATIC)
    stands_still(case, "young")
    assert case.decided(OpportunityGranted) == []


def test_one_that_fails_where_it_stands_waits_no_more():
    case = under("gandiva")
    case.submit("b1", 2, "b")
    stands_still(case, "young")
    case.give(
        AttemptFailed(job_id="young", attempt=1, node_id="n0", exit_code=1, signal=None, outcome="exited", reason=SAID)
    )
    assert case.succeed("b1") == []


def test_one_that_loses_its_place_waits_as_another_attempt():
    case = under("gandiva")
    case.submit("b1", 2, "b")
    stands_still(case, "young")
    case.leave("young", 2)
    assert only(case.succeed("b1"), QuotaGranted).attempt == 2


def test_one_that_is_done_where_it_stands_is_forgotten():
    case = under("gandiva")
    case.submit("b1", 2, "b")
    stands_still(case, "young")
    case.give(JobSucceeded(job_id="young", attempt=1))
    assert "young" not in case.replica.state.claims
    assert case.succeed("b1") == []
