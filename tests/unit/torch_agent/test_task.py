"""What the agent does about a task, from orders and what is seen."""

from hypothesis import given
from hypothesis import strategies as st
from torch_agent.core.task import (
    Action,
    Ended,
    Order,
    Seen,
    Status,
    Step,
    Task,
    advance,
    apply_order,
    next_look_s,
)

from libs.contracts.agent import JobExited, JobResumed, JobStarted, JobSuspended
from libs.contracts.placement import LaunchTask, ResumeTask, StopTask, SuspendTask
from libs.contracts.reasons import Reason

LAUNCH = LaunchTask(
    node_id="n1",
    job_id="a",
    attempt=1,
    name="a",
    tenant="default",
    command=["python", "train.py"],
    env={},
    working_dir=None,
    code_id=None,
    gpu_indices=[0],
    launcher="ranks",
    first_rank=0,
    world_size=1,
    node_rank=0,
    node_count=1,
    rendezvous_host=None,
    rendezvous_port=None,
    time_limit_s=None,
)
STOP = StopTask(node_id="n1", job_id="a", attempt=1, grace_s=5.0, reason=Reason(code="Test", message=""))
SUSPEND = SuspendTask(node_id="n1", job_id="a", attempt=1)
RESUME = ResumeTask(node_id="n1", job_id="a", attempt=1)

NOTHING, STARTING, UP = Seen(), Seen(launched=True), Seen(launched=True, pid=7)


def down(code: int | None = 0, signal: int | None = None, outcome: str = "exited") -> Seen:
    return Seen(launched=True, pid=7, ended=Ended(exit_code=code, signal=signal, outcome=outcome))


class Case:
    def __init__(self, *orders: Order) -> None:
        self.tasks: dict[str, Task] = {}
        for order in (LAUNCH, *orders):
            apply_order(self.tasks, order)

    @property
    def task(self) -> Task:
        return self.tasks["a.1"]

    def order(self, order: Order) -> None:
        apply_order(self.tasks, order)

    def see(self, seen: Seen, now_s: float = 0.0) -> Step:
        return advance(self.task, seen, now_s)


def test_a_task_is_launched_reported_and_ends():
    case = Case()
    assert case.see(NOTHING).actions == [Action.LAUNCH]
    assert case.see(STARTING) == Step()
    assert case.see(UP, 10.0).facts == [JobStarted(job_id="a", attempt=1, node_id="n1", pid=7)]
    assert case.see(UP) == Step()
    [exited] = case.see(down(), 12.5).facts
    assert isinstance(exited, JobExited)
    assert (exited.exit_code, exited.outcome, exited.ran_s) == (0, "exited", 2.5)
    assert case.see(down()) == Step()


def test_a_task_that_ends_before_it_was_seen_running_reports_both():
    assert [type(fact) for fact in Case().see(down(1)).facts] == [JobStarted, JobExited]


def test_a_repeated_launch_changes_nothing():
    case = Case()
    case.see(NOTHING)
    assert apply_order(case.tasks, LAUNCH) is None
    case.see(UP)
    assert apply_order(case.tasks, LAUNCH) is None
    assert case.see(UP) == Step()


def test_a_stop_is_polite_first_and_then_not():
    case = Case()
    case.see(UP)
    case.order(STOP)
    assert case.see(UP, 100.0).actions == [Action.TERMINATE]
    assert next_look_s(case.task) == 105.0
    assert case.see(UP, 104.0) == Step()
    assert case.see(UP, 105.0).actions == [Action.KILL]
    [exited] = case.see(down(None, 9, "signalled"), 105.1).facts
    assert exited.outcome == "stopped"


def test_a_task_that_finishes_although_it_was_to_be_stopped_has_finished():
    case = Case(STOP)
    case.see(UP)
    [exited] = case.see(down(0)).facts
    assert (exited.outcome, exited.exit_code) == ("exited", 0)


def test_a_task_stopped_before_its_launch_is_never_launched():
    case = Case(STOP)
    step = case.see(NOTHING)
    assert step.actions == [] and [fact.outcome for fact in step.facts] == ["stopped"]


def test_suspend_and_resume():
    case = Case()
    case.see(UP)
    case.order(SUSPEND)
    step = case.see(UP)
    assert step.actions == [Action.SUSPEND] and [type(f) for f in step.facts] == [JobSuspended]
    assert case.see(UP) == Step()
    case.order(RESUME)
    step = case.see(UP)
    assert step.actions == [Action.CONTINUE] and [type(f) for f in step.facts] == [JobResumed]


def test_nothing_brings_a_stopped_task_back():
    case = Case(STOP)
    case.order(RESUME)
    case.see(UP)
    assert case.see(UP).actions == [Action.TERMINATE]


def test_orders_for_unknown_tasks_change_nothing():
    assert apply_order({}, STOP) is None


@given(st.lists(st.sampled_from([STOP, SUSPEND, RESUME, LAUNCH, NOTHING, STARTING, UP, down(), down(1)])))
def test_whatever_happens_a_task_starts_once_and_ends_once(history: list[Order | Seen]):
    case, facts = Case(), []
    ended = False
    for moment, item in enumerate(history):
        if not isinstance(item, Seen):
            case.order(item)
        elif not ended or item.ended is not None:
            facts += case.see(item, float(moment)).facts
            ended = ended or item.ended is not None
    assert sum(isinstance(fact, JobStarted) for fact in facts) <= 1
    assert sum(isinstance(fact, JobExited) for fact in facts) == (case.task.status is Status.EXITED)


def test_a_task_waits_for_its_gpus_to_be_left():
    case = Case()
    assert case.see(Seen(gpus_taken=True)) == Step()
    assert case.see(NOTHING).actions == [Action.LAUNCH]
