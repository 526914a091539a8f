"""Lines of running attempts: told once, to the last one, and over kills."""

import pytest

from libs.contracts.agent import JobLogged, LogLine
from libs.contracts.envelope import Envelope
from libs.contracts.failure_analysis import FailureObserved
from libs.failures.package import package_rules
from libs.failures.verdict import Ended
from services.failure_analysis.core import following
from services.failure_analysis.core.following import FORGOTTEN_AFTER_S, KEPT_LINES, MOST_BEHIND, MOST_TOLD, Following
from services.failure_analysis.core.watching import Attempt

RUNNING = {"a": Attempt(number=1)}
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
LOST = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4242"
BAD = Ended(exit_code=1)


class Shell:
    """Feeds lines, one record each."""

    def __init__(self) -> None:
        self.following = Following(package_rules())
        self.offset = 0

    def prints(self, *texts: str, rank: int = 0, node: str = "n1", attempt: int = 1, at: int | None = None) -> None:
        offset = self.offset if at is None else at
        lines = [LogLine(time_s=0.0, stream="stderr", rank=rank, text=text) for text in texts]
        logged = JobLogged(job_id="a", attempt=attempt, node_id=node, lines=lines)
        record = Envelope(id=f"id-{offset}", source="agent/n1", time_s=0.0, event=logged)
        self.following.take(record, logged, 3, offset, now_s=0.0)
        self.offset = max(self.offset, offset + 1)

    def tells(self, attempts: dict[str, Attempt] = RUNNING) -> list[FailureObserved]:
        return self.following.told(attempts)


def test_a_line_that_decides_is_told_while_the_job_runs_and_once():
    shell = Shell()
    shell.prints("epoch 1 loss 0.5")
    assert shell.tells() == []
    shell.prints(OOM, rank=1, node="n2")
    [told] = shell.tells()
    assert (told.failure, told.rank, told.node_id, told.complete) == ("gpu_out_of_memory", 1, "n2", False)
    assert told.line == OOM and told.digest == package_rules().digest
    shell.prints(OOM, rank=1, node="n2")
    assert shell.tells() == []


def test_a_better_line_is_told_too_and_the_last_word_says_which_ranks_follow_from_it():
    shell = Shell()
    shell.prints(LOST, rank=0)
    shell.prints(OOM, rank=1)
    [told] = shell.tells()
    assert told.failure == "gpu_out_of_memory"
    word = shell.following.last_word("a", 1, BAD)
    assert (word.complete, word.rank, word.others) == (True, 1, [0])
    assert word.evidence == [LOST]


def test_what_control_knows_already_is_not_told_again_after_a_kill():
    shell = Shell()
    shell.prints(OOM, rank=1)
    [told] = shell.tells()
    again = Shell()
    again.prints(OOM, rank=1)
    assert again.tells({"a": Attempt(number=1, told=[following.key_of(told.rule, told.rank)])}) == []
    assert again.following.last_word("a", 1, BAD).rule == told.rule


def test_lines_of_an_attempt_that_control_does_not_know_yet_are_told_when_it_does():
    shell = Shell()
    shell.prints(OOM)
    assert shell.tells({}) == []
    assert len(shell.tells()) == 1


def test_lines_of_an_attempt_that_has_failed_wait_for_the_last_word():
    shell = Shell()
    shell.prints(OOM)
    assert shell.tells({"a": Attempt(number=1, ended=BAD)}) == []
    assert shell.tells({"a": Attempt(number=2)}) == []


def test_a_record_that_comes_twice_counts_once():
    shell = Shell()
    shell.prints("step 1 loss 0.5", OOM)
    for _ in range(3):  # else three lines of progress would say that it was survived
        shell.prints("step 2 loss 0.4", at=1)
    assert len(shell.tells()) == 1


def test_without_a_line_the_last_word_says_that():
    shell = Shell()
    word = shell.following.last_word("a", 1, BAD)
    assert (word.rule, word.cause, word.line, word.complete) == ("", "no_signature", "", True)
    killed = shell.following.last_word("a", 1, Ended(signal=11))
    assert (killed.rule, killed.cause) == ("", "segmentation_fault")


def test_evidence_and_lines_are_cut():
    shell = Shell()
    shell.prints(OOM + "x" * 3000)
    [told] = shell.tells()
    assert len(told.line) == following.LINE_LIMIT


def test_only_a_few_lines_of_an_attempt_are_told():
    shell = Shell()
    for rank in range(30):
        shell.prints(OOM, rank=rank)
        shell.prints(*(["step 2 loss 0.4"] * 4), rank=rank)
    told = [each for _ in range(2) for each in shell.tells()]
    for number in range(40):
        shell.prints(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=1", rank=number)
        told += shell.tells()
    assert 0 < len(told) <= MOST_TOLD


def test_a_new_shell_begins_where_it_still_knows_enough():
    shell = Shell()
    assert shell.following.position(3, 0) == 0
    for _ in range(KEPT_LINES // 10 + 50):
        shell.prints(*["step 2 loss 0.4"] * 10)
    assert shell.following.position(3, shell.offset) == 50
    assert shell.following.position(4, 17) == 17
    assert shell.following.position(3, 50 + 2 * MOST_BEHIND) == 50 + MOST_BEHIND
    shell.following.last_word("a", 1, BAD)
    assert shell.following.position(3, shell.offset) == shell.offset


@pytest.mark.parametrize("attempts", [{}, {"a": Attempt(number=2)}])
def test_attempts_that_are_over_are_forgotten(attempts: dict[str, Attempt]):
    shell = Shell()
    shell.prints(OOM)
    shell.following.forget_all_but(attempts, FORGOTTEN_AFTER_S)
    assert shell.following.position(3, 9) == 0
    shell.following.forget_all_but(attempts, FORGOTTEN_AFTER_S + 1)
    assert shell.following.position(3, 9) == 9


def test_new_rules_are_for_attempts_that_begin_later():
    shell = Shell()
    shell.prints("hello")
    first = shell.following.rules
    shell.following.rules = None  # type: ignore[assignment]
    shell.prints(OOM)
    assert shell.tells()[0].digest == first.digest
