"""What the agent does about a task, from orders and what is seen."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.agent import JobExited, JobRanksApart, JobResumed, JobSettingUp, JobStarted, JobSuspended
from libs.contracts.placement import ResumeTask, StopTask, SuspendTask
from libs.contracts.reasons import Reason
from libs.node.advance import BOUNDARY_PATIENCE_S, WARMING_PATIENCE_S, Action, Step, advance, next_look_s
from libs.node.seen import ByDriver, Ended, OnDevice, Seen, Setup, Stillness, Wait
from libs.node.task import Order, Status, Task, Want, apply_order, stop_all
from libs.testing.builders import launch

LAUNCH = launch("a", "python", "train.py")
STOP = StopTask(node_id="n1", job_id="a", attempt=1, grace_s=5.0, reason=Reason(code="Test", message=""))
SUSPEND = SuspendTask(node_id="n1", job_id="a", attempt=1)
PAUSE = SuspendTask(node_id="n1", job_id="a", attempt=1, pause=True)
RESUME = ResumeTask(node_id="n1", job_id="a", attempt=1)

NOTHING, STARTING, UP = Seen(), Seen(launched=True), Seen(launched=True, pid=7)

TAKEN = Wait(gpus=[0], jobs=["b"])


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


def running() -> Case:
    case = Case()
    case.see(UP)
    return case


def suspended(seen: Seen = UP) -> Case:
    case = running()
    case.order(SUSPEND)
    case.see(UP, 10.0)
    case.see(seen, 10.5)
    return case


def listening(*, acknowledged: bool, parked: int = 0) -> Seen:
    """Processes with the harness; the boundary was reached at 10.2 s."""
    stillness = Stillness(
        parked=parked > 0,
        bytes_parked=parked,
        bytes_left=3,
        park_s=0.1,
        unpark_s=0.2,
        parked_at_s=10.2,
        minibatches_total=7,
    )
    return Seen(launched=True, pid=7, harnessed=True, acknowledged=acknowledged, stillness=stillness)


def test_processes_without_the_harness_are_stopped_where_they_are():
    case = running()
    case.order(SUSPEND)
    assert case.see(UP, 10.0).actions == [Action.ASK]
    step = case.see(UP, 10.5)
    assert step.actions == [Action.FREEZE]
    [fact] = step.facts
    assert fact == JobSuspended(job_id="a", attempt=1, node_id="n1", parked=False, delay_s=0.5, note=fact.note)
    assert fact.note == "its processes do not listen at mini-batch boundaries"
    assert case.see(UP) == Step()


IMPORTS_TORCH = Seen(launched=True, pid=7, untrained=True)


def test_a_task_that_has_just_begun_may_show_what_it_is_before_it_is_stopped():
    case = running()
    case.order(PAUSE)
    assert case.see(UP, 0.5).actions == [Action.ASK]
    assert case.see(UP, 9.9) == Step()
    [fact] = case.see(UP, 10.0).facts
    assert (fact.parked, fact.untrained) == (False, False), "a program without torch may have worked from its start"


def test_a_task_that_has_just_begun_makes_room_for_a_turn_at_once():
    case = running()
    case.order(SUSPEND)
    assert case.see(UP, 0.5).actions == [Action.ASK]
    assert case.see(UP, 0.6).actions == [Action.FREEZE]


def test_a_task_that_imports_torch_is_stopped_there_and_has_done_nothing_yet():
    case = running()
    case.order(PAUSE)
    case.see(UP, 0.5)
    step = case.see(IMPORTS_TORCH, 3.0)
    assert step.actions == [Action.FREEZE]
    [fact] = step.facts
    assert (fact.parked, fact.untrained, fact.delay_s) == (False, True, 2.5)


def test_a_task_without_mini_batches_that_runs_for_long_may_have_done_much():
    case = running()
    case.order(PAUSE)
    case.see(IMPORTS_TORCH, 130.0)
    [fact] = case.see(IMPORTS_TORCH, 130.5).facts
    assert not fact.untrained


def test_a_suspension_waits_for_the_boundary_and_says_what_it_took():
    case = running()
    case.order(SUSPEND)
    case.see(UP, 10.0)
    assert case.see(listening(acknowledged=False), 10.1) == Step()
    step = case.see(listening(acknowledged=True, parked=100), 10.4)
    assert step.actions == [Action.FREEZE]
    [fact] = step.facts
    assert isinstance(fact, JobSuspended)
    assert (fact.parked, fact.delay_s, fact.took_s) == (True, 0.2, 0.1)
    assert (fact.parked_bytes, fact.left_bytes, fact.minibatches_total) == (100, 3, 7)


def test_a_process_that_reaches_no_boundary_is_stopped_in_the_end():
    case = running()
    case.order(SUSPEND)
    case.see(UP, 10.0)
    assert case.see(listening(acknowledged=False), 9.9 + BOUNDARY_PATIENCE_S) == Step()
    [fact] = case.see(listening(acknowledged=False), 10.0 + BOUNDARY_PATIENCE_S).facts
    assert isinstance(fact, JobSuspended) and not fact.parked
    assert fact.note == f"its processes came to no mini-batch boundary within {BOUNDARY_PATIENCE_S:.0f} s"


@pytest.mark.parametrize(
    ("memory", "note"), [(OnDevice.NONE, ""), (OnDevice.STUCK, "the driver could not take it off")]
)
def test_the_driver_is_asked_whether_the_gpu_is_free(memory: OnDevice, note: str):
    case = running()
    case.order(SUSPEND)
    case.see(UP, 10.0)
    [fact] = case.see(msgspec.structs.replace(UP, by_driver=ByDriver(memory=memory)), 10.5).facts
    assert isinstance(fact, JobSuspended) and (fact.parked, fact.note) == (not note, note)


def test_processes_that_could_not_move_their_memory_say_where_the_cause_is():
    case = running()
    case.order(SUSPEND)
    case.see(UP, 10.0)
    [fact] = case.see(listening(acknowledged=True, parked=0), 10.4).facts
    assert isinstance(fact, JobSuspended) and not fact.parked and "no room" in fact.note


def test_a_resumption_is_reported_when_the_memory_is_back():
    case = suspended()
    case.order(RESUME)
    assert case.see(UP, 20.0) == Step(actions=[Action.THAW])
    assert case.see(listening(acknowledged=False), 20.1) == Step()
    [fact] = case.see(listening(acknowledged=True), 20.3).facts
    assert isinstance(fact, JobResumed)
    assert (fact.gpu_indices, fact.took_s, fact.delay_s) == ([0], 0.2, 0.3)


@pytest.mark.parametrize("agent_was_killed", [False, True])
def test_a_task_that_comes_back_and_ends_before_the_next_look_has_been_back(agent_was_killed: bool):
    case = suspended()
    case.order(msgspec.structs.replace(RESUME, gpu_indices=[2]))
    if not agent_was_killed:  # else it does not know any more when it has called the task back
        case.see(UP, 20.0)
    back, end = case.see(down(), 20.4).facts
    assert isinstance(back, JobResumed)
    assert (back.gpu_indices, back.delay_s) == ([2], 0.0 if agent_was_killed else 0.4)
    assert isinstance(end, JobExited) and end.exit_code == 0


@pytest.mark.parametrize("called_back", [False, True])
def test_a_task_that_is_killed_where_it_stands_has_not_been_back(called_back: bool):
    case = suspended()
    if called_back:
        case.order(RESUME)
        case.see(UP, 20.0)
    [end] = case.see(down(None, 9, "signalled"), 20.4).facts
    assert isinstance(end, JobExited) and end.signal == 9


def test_a_suspended_task_is_ended_where_it_stands():
    case = suspended(listening(acknowledged=True, parked=100))
    case.order(STOP)
    assert case.see(UP, 100.0).actions == [Action.END_STILL]
    assert case.see(UP, 104.0) == Step()
    assert case.see(UP, 105.0).actions == [Action.KILL]
    [exited] = case.see(down(143), 105.1).facts
    assert isinstance(exited, JobExited) and exited.outcome == "stopped"


def test_a_task_that_has_its_gpus_back_is_ended_like_one_that_runs():
    case = suspended(listening(acknowledged=True, parked=100))
    case.order(RESUME)
    assert case.see(UP, 20.0).actions == [Action.THAW]
    case.order(STOP)
    assert case.see(listening(acknowledged=False), 20.1).actions == [Action.TERMINATE]


def test_a_resumption_waits_for_its_gpus_and_may_be_elsewhere():
    case = suspended()
    assert not case.task.occupies
    case.order(msgspec.structs.replace(RESUME, gpu_indices=[2]))
    assert case.see(msgspec.structs.replace(UP, wait=TAKEN)) == Step()
    assert case.see(UP, 20.0).actions == [Action.THAW]
    assert case.task.occupies
    [fact] = case.see(UP, 20.1).facts
    assert isinstance(fact, JobResumed) and fact.gpu_indices == [2]


def test_a_task_that_is_called_back_before_the_boundary_just_goes_on():
    case = running()
    case.order(SUSPEND)
    case.see(UP, 10.0)
    case.order(RESUME)
    assert case.see(listening(acknowledged=False), 10.1) == Step(actions=[Action.THAW])
    assert case.see(listening(acknowledged=True), 10.2) == Step()


def test_a_task_that_is_called_to_other_gpus_moves_there():
    case = running()
    case.order(msgspec.structs.replace(RESUME, gpu_indices=[3]))
    assert case.see(UP, 10.0).actions == [Action.ASK]
    assert case.see(UP, 10.1).actions == [Action.FREEZE]
    assert case.see(UP, 10.2).actions == [Action.THAW]
    [fact] = case.see(UP, 10.3).facts
    assert isinstance(fact, JobResumed) and fact.gpu_indices == [3]


def test_a_task_that_is_suspended_again_while_it_comes_back_comes_back_first():
    case = suspended()
    case.order(RESUME)
    case.see(UP, 20.0)
    case.order(SUSPEND)
    assert [type(fact) for fact in case.see(UP, 20.1).facts] == [JobResumed]
    assert case.see(UP, 20.2).actions == [Action.ASK]


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
    turns = [type(fact) for fact in facts if isinstance(fact, JobSuspended | JobResumed)]
    assert turns == [JobSuspended, JobResumed] * (len(turns) // 2) + [JobSuspended] * (len(turns) % 2)


def test_a_task_waits_for_its_gpus_to_be_left():
    case = Case()
    assert case.see(Seen(wait=TAKEN)) == Step()
    assert case.see(NOTHING).actions == [Action.LAUNCH]


def test_a_task_of_a_journal_without_gpu_lists_has_the_gpus_of_its_order():
    launch = msgspec.structs.replace(LAUNCH, packed_with=["j-2"])
    older = {"order": msgspec.to_builtins(launch), "status": "running", "want": "run", "started_s": 1.0}
    task = msgspec.json.decode(msgspec.json.encode(older), type=Task)
    assert task.occupies and task.partners == ["j-2"]
    assert task.gpu_indices == task.wanted_gpus == LAUNCH.gpu_indices != []


def test_a_task_that_starts_at_time_zero_has_run_since_then():
    case = Case()
    case.see(NOTHING, 0.0)
    case.see(UP, 0.0)
    [exited] = case.see(down(), 3.0).facts
    assert exited.ran_s == 3.0


def test_a_look_is_due_when_patience_with_a_boundary_ends():
    case = running()
    assert next_look_s(case.task) is None
    case.order(SUSPEND)
    case.see(listening(acknowledged=False), 10.0)
    assert next_look_s(case.task) == 10.0 + BOUNDARY_PATIENCE_S
    [fact] = case.see(listening(acknowledged=False), 10.0 + BOUNDARY_PATIENCE_S).facts
    assert isinstance(fact, JobSuspended) and not fact.parked
    assert next_look_s(case.task) is None


def test_a_look_is_due_when_patience_with_a_script_that_is_to_take_over_ends():
    tasks: dict[str, Task] = {}
    task = apply_order(tasks, msgspec.structs.replace(LAUNCH, restores=True))
    assert task is not None
    advance(task, UP, 5.0)
    assert task.status is Status.WARMING and next_look_s(task) == 5.0 + WARMING_PATIENCE_S
    assert advance(task, UP, 4.0 + WARMING_PATIENCE_S) == Step()
    assert advance(task, UP, 5.0 + WARMING_PATIENCE_S).actions == [Action.KILL]


def test_a_node_that_leaves_wants_every_task_to_end():
    case = Case()
    case.see(UP)
    stop_all(case.tasks)
    assert case.see(UP, 1.0).actions == [Action.TERMINATE]
    case.see(down(None, 15, "signalled"))
    stop_all(case.tasks)
    assert case.task.status is Status.EXITED


def test_a_task_stopped_before_its_launch_says_what_it_waited_for():
    case = Case()
    case.order(STOP)
    fact = case.see(Seen(preparing="fetching and unpacking code c-1")).facts[-1]
    assert (fact.outcome, fact.stderr_tail) == ("stopped", "fetching and unpacking code c-1")
    case = Case()
    case.order(STOP)
    fact = case.see(Seen(wait=TAKEN)).facts[-1]
    assert fact.stderr_tail == "GPU 0 still used by b"


def test_ranks_that_train_without_a_process_group_are_reported_once():
    case = running()
    assert case.see(msgspec.structs.replace(UP, apart=0)).facts == []
    [fact] = case.see(msgspec.structs.replace(UP, apart=4)).facts
    assert isinstance(fact, JobRanksApart) and (fact.processes, fact.reason.code) == (4, "NoProcessGroup")
    assert fact.reason.message.startswith("4 processes train side by side without a process group: ")
    assert "--launch per-node" in fact.reason.message
    assert case.see(msgspec.structs.replace(UP, apart=4)).facts == []


def test_a_setup_is_reported_once_and_before_the_start_or_the_end():
    setup = Setup(command="pip install x", limit_s=60.0)
    case = Case()
    [fact] = case.see(Seen(launched=True, setup=setup)).facts
    assert isinstance(fact, JobSettingUp)
    assert (fact.limit_s, fact.reason.message) == (60.0, "setting up: pip install x")
    assert case.see(Seen(launched=True, setup=setup)).facts == []
    assert [type(each) for each in case.see(Seen(launched=True, setup=setup, pid=7)).facts] == [JobStarted]
    case = Case()
    ended = Ended(exit_code=None, signal=None, outcome="setup_failed", stderr_tail="no such package")
    facts = case.see(Seen(launched=True, setup=setup, ended=ended)).facts
    assert [type(each) for each in facts] == [JobSettingUp, JobExited]


@pytest.mark.parametrize(
    ("seen", "outcome"), [(down(None, 9, "signalled"), "interrupted"), (down(0, None, "exited"), "exited")]
)
def test_a_task_that_the_node_has_expelled_is_not_to_blame_and_may_have_done_its_work(seen: Seen, outcome: str):
    case = running()
    case.task.want, case.task.expelled = Want.STOP, "o needs its memory"
    fact = case.see(seen).facts[-1]
    assert isinstance(fact, JobExited)
    assert (fact.outcome, fact.stderr_tail == "o needs its memory") == (outcome, outcome == "interrupted")
