"""Where the state of an earlier attempt is, and what its node says."""

import pytest

from libs.contracts.placement import RestoreTask, StateSource
from libs.node.fetching import FETCH_PATIENCE_S, Answer, answer, asks_again, source_of
from libs.node.task import Status, Task, Want
from libs.testing.builders import launch

SOURCES = [
    StateSource(node_id="n1", address="10.0.0.1", port=1, first_rank=0),
    StateSource(node_id="n2", address="10.0.0.2", port=1, first_rank=4),
]


def restore(ranks: int | None = None) -> RestoreTask:
    return RestoreTask(node_id="n3", job_id="a", attempt=2, from_attempt=1, sources=SOURCES, ranks=ranks)


@pytest.mark.parametrize(("rank", "node_id"), [(0, "n1"), (3, "n1"), (4, "n2"), (7, "n2")])
def test_each_rank_takes_the_state_of_the_same_rank(rank: int, node_id: str):
    source, from_rank = source_of(restore(), rank)
    assert (source.node_id, from_rank) == (node_id, rank)


def test_of_fewer_ranks_several_take_the_state_of_one():
    assert [source_of(restore(ranks=5), rank)[1] for rank in range(8)] == [0, 1, 2, 3, 4, 0, 1, 2]
    assert source_of(restore(ranks=5), 5)[0].node_id == "n1"


@pytest.mark.parametrize(
    ("status", "want", "asked_since_s", "said"),
    [
        (Status.SUSPENDED, Want.SUSPEND, None, Answer.HERE),
        (Status.SUSPENDED, Want.RUN, None, Answer.LATER),
        (Status.SUSPENDED, Want.SUSPEND, 1.0, Answer.LATER),
        (Status.SUSPENDED, Want.STOP, None, Answer.LATER),
        (Status.RUNNING, Want.SUSPEND, 1.0, Answer.LATER),
        (Status.EXITED, Want.SUSPEND, None, Answer.NEVER),
    ],
)
def test_a_node_gives_the_state_of_a_task_that_stands_still(
    status: Status, want: Want, asked_since_s: float | None, said: Answer
):
    task = Task(order=launch("a", "true"), status=status, want=want, asked_since_s=asked_since_s)
    assert answer(task) is said


def test_a_node_that_does_not_know_the_task_has_no_state_of_it():
    assert answer(None) is Answer.NEVER


def test_a_source_is_asked_again_as_long_as_patience_lasts():
    assert asks_again(10.0, 10.0 + FETCH_PATIENCE_S)
    assert not asks_again(10.0, 10.1 + FETCH_PATIENCE_S)
