"""An attempt of which lines are followed is judged by them, and has the consequence that fits."""

import msgspec

from libs.contracts.agent import NodeJoined
from libs.contracts.base import Event
from libs.contracts.cluster import TaskPlacement
from libs.contracts.failure_analysis import (
    FailureClassified,
    FailureObserved,
    JobAbandoned,
    RetryScheduled,
    RulesLoaded,
)
from libs.contracts.placement import AttemptFailed, JobCancelled, JobPlaced
from libs.contracts.reasons import Reason
from libs.failures.consequences import Consequence
from libs.testing.core_case import CoreCase, arrival, node, only
from services.failure_analysis.service import SERVICE

WHY = Reason(code="Test", message="said by the test")
GIB = 1 << 30
LOADED = RulesLoaded(digest="d" * 32, rules=488)


def case_of(*, nodes: tuple[NodeJoined, ...] = (), loaded: RulesLoaded = LOADED, **fields: object) -> CoreCase:
    """A gang of two ranks on n1 and two on n2."""
    case = CoreCase(SERVICE)
    gang = [
        TaskPlacement(node_id="n1", gpu_indices=[2, 3], first_rank=0),
        TaskPlacement(node_id="n2", gpu_indices=[0, 5], first_rank=2),
    ]
    for event in (
        *nodes,
        loaded,
        arrival("a", 4, **{"max_retries": 3, **fields}),
        JobPlaced(job_id="a", attempt=1, gang=gang, reason=WHY),
    ):
        assert case.give(event, at=0.0) == []
    return case


def failed(attempt: int = 1, *, outcome: str = "exited", stderr: str = "", code: int = 1) -> AttemptFailed:
    return AttemptFailed(
        job_id="a",
        attempt=attempt,
        node_id="n1",
        exit_code=code,
        signal=None,
        outcome=outcome,
        stderr_tail=stderr,
        reason=WHY,
    )


def observed(cause: str, *, level: int = 30, rank: int = 0, attempt: int = 1, **fields: object) -> FailureObserved:
    of_cause = {
        "rule": f"rule_of_{cause}",
        "failure": "cuda_failure",
        "category": "ai_engine",
        "retry_can_help": True,
        "confidence": 0.9,
        "line": f"a line of {cause}",
        "node_id": "n1" if rank < 2 else "n2",
        "stream": "stderr",
        "complete": True,
    }
    return FailureObserved(
        job_id="a", attempt=attempt, digest="d" * 32, cause=cause, level=level, rank=rank, **{**of_cause, **fields}
    )


def types(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def test_the_verdict_waits_for_the_last_line_and_comes_with_it():
    case = case_of()
    assert case.give(observed("xid_79", complete=False)) == []
    assert case.give(failed(), at=10.0) == []
    classified, retry = case.give(observed("xid_79", level=11, rank=3), at=10.5)
    assert isinstance(classified, FailureClassified) and isinstance(retry, RetryScheduled)
    assert (classified.failure, classified.cause, classified.rule) == ("cuda_failure", "xid_79", "rule_of_xid_79")
    assert (classified.rank, classified.node_id, classified.gpu_index) == (3, "n2", 5)
    assert classified.deciding_line == "a line of xid_79"
    assert (retry.consequence, retry.avoided_nodes, retry.not_before_s) == ("elsewhere", ["n2"], 10.5)
    assert retry.reason.message.endswith("; next try at once, not on n2 while others can take it")


def test_one_whose_lines_do_not_come_is_judged_by_what_was_told_before_and_later_words_change_nothing():
    case = case_of()
    case.give(observed("xid_79", level=11, rank=1, complete=False))
    assert case.give(failed(), at=10.0) == []
    classified = only(case.wake(), FailureClassified)
    assert (case.now_s, classified.cause, classified.rank) == (40.0, "xid_79", 1)
    assert case.give(observed("syntax")) == []
    assert case.replica.next_wakeup is None


def test_the_end_of_stderr_decides_where_no_line_does():
    case = case_of()
    case.give(failed(stderr="ModuleNotFoundError: No module named 'apex'\n"))
    nothing = observed("no_signature", rule="", line="", failure="no_signature", category="", level=99)
    classified, abandoned = case.give(nothing)
    assert isinstance(classified, FailureClassified) and classified.cause == "module_missing"
    assert isinstance(abandoned, JobAbandoned) and abandoned.consequence == "never"


def test_what_an_agent_says_needs_no_lines():
    assert types(case_of().give(failed(outcome="time_limit"))) == [FailureClassified, JobAbandoned]


def test_a_line_of_another_attempt_is_not_this_ones():
    case = case_of()
    case.give(failed())
    assert case.give(observed("xid_79", attempt=2)) == []


def test_a_cancelled_job_is_waited_for_no_more():
    case = case_of()
    case.give(failed(), at=10.0)
    case.give(JobCancelled(job_id="a", attempt=1, reason=WHY))
    assert case.replica.next_wakeup is None
    assert case.give(observed("xid_79")) == []


def test_a_peer_that_is_gone_is_avoided_where_it_can_be_told():
    case = case_of()
    case.give(failed())
    retry = only(case.give(observed("peer_lost", level=72, rank=0, others=[1])), RetryScheduled)
    assert (retry.consequence, retry.avoided_nodes) == ("elsewhere", ["n2"])
    both = case_of()
    both.give(failed())
    assert only(both.give(observed("peer_lost", level=72, others=[2])), RetryScheduled).avoided_nodes == []


def test_avoided_nodes_add_up():
    case = case_of()
    case.give(failed())
    case.give(observed("xid_79", rank=0))
    case.give(failed(2))
    assert only(case.give(observed("ecc_remap", rank=2, attempt=2)), RetryScheduled).avoided_nodes == ["n1", "n2"]


def test_only_a_job_that_lets_itself_be_changed_gets_more_memory_and_not_more_than_a_node_has():
    big = node("n1", 4, memory_bytes=100 * GIB)
    case = case_of(nodes=(big,), changeable=True, memory_bytes=16 * GIB)
    got = []
    for attempt in (1, 2, 3):
        case.give(failed(attempt))
        outputs = case.give(observed("host_memory_full", attempt=attempt, retry_can_help=False))
        got.append(outputs[1])
    first, second, third = got
    assert isinstance(first, RetryScheduled) and isinstance(second, RetryScheduled)
    assert (first.consequence, first.memory_bytes, second.memory_bytes) == ("more_memory", 24 * GIB, 25 * GIB)
    assert "with 24.0 GiB of the host's memory for each GPU" in first.reason.message
    assert isinstance(third, JobAbandoned)
    fixed = case_of(nodes=(big,), memory_bytes=16 * GIB)
    fixed.give(failed())
    assert types(fixed.give(observed("host_memory_full", retry_can_help=False)))[1] is JobAbandoned


def test_another_allocator_is_tried_once():
    case = case_of(changeable=True)
    case.give(failed())
    retry = only(case.give(observed("gpu_memory_fragmented", retry_can_help=False)), RetryScheduled)
    assert retry.env == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    case.give(failed(2))
    again = case.give(observed("gpu_memory_fragmented", retry_can_help=False, attempt=2))
    assert only(again, JobAbandoned).reason.code == "RetryCannotHelp"


def test_a_job_goes_on_from_its_checkpoint_only_if_it_keeps_one():
    for restartable, consequence, delay_s in ((True, "resume", 0.0), (False, "later", 2.0)):
        case = case_of(restartable=restartable)
        case.give(failed(), at=5.0)
        retry = only(case.give(observed("checkpoint_write")), RetryScheduled)
        assert (retry.consequence, retry.not_before_s) == (consequence, 5.0 + delay_s)


def test_the_operators_table_goes_first():
    case = case_of(loaded=msgspec.structs.replace(LOADED, consequences={"xid_79": Consequence.NEVER}))
    case.give(failed())
    classified, abandoned = case.give(observed("xid_79"))
    assert isinstance(classified, FailureClassified) and not classified.retry_can_help
    assert isinstance(abandoned, JobAbandoned) and abandoned.consequence == "never"


def test_at_once_is_no_more_often_than_allowed():
    case = case_of(max_retries=1)
    case.give(failed())
    assert types(case.give(observed("xid_79")))[1] is RetryScheduled
    case.give(failed(2))
    assert only(case.give(observed("xid_79", attempt=2)), JobAbandoned).reason.code == "RetriesUsedUp"


def test_a_node_that_could_not_start_it_is_avoided():
    retry = only(case_of().give(failed(outcome="node_failed")), RetryScheduled)
    assert (retry.consequence, retry.avoided_nodes) == ("elsewhere", ["n1"])
