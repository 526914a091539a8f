"""Which line decides: over ranks, streams, exit statuses, handled errors and broken text."""

from __future__ import annotations

import pytest

from libs.failures.classifier import Classifier
from libs.failures.exits import said
from libs.failures.package import package_rules
from libs.failures.verdict import Ended, Verdict

FAILED = Ended(exit_code=1)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
PEER = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE)"
SAVING = "saving checkpoint to /ckpt/a.pt\n"
PROGRESS = "step 1 loss 2.1\nstep 2 loss 2.0\nstep 3 loss 1.9\n"
FRAMES = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\n    main()\n'


def verdict(log: str | bytes, ended: Ended | None = FAILED) -> Verdict | None:
    classifier = Classifier(package_rules())
    classifier.feed(log)
    return classifier.verdict(ended)


def reason(log: str | bytes, ended: Ended | None = FAILED) -> str:
    found = verdict(log, ended)
    return found.reason if found is not None else ""


@pytest.mark.parametrize("first", [OOM, PEER])
def test_a_lost_peer_yields_to_a_reason_on_another_rank_in_any_order(first: str):
    second = PEER if first is OOM else OOM
    found = verdict(f"[rank3]: {first}\n[rank0]: {second}\n")
    assert found is not None and found.reason == "gpu_out_of_memory"
    assert found.rank == (3 if first is OOM else 0)
    assert any("Watchdog" in line for line in found.evidence)


def test_of_lines_of_one_rank_of_rules_the_earliest_decides():
    found = verdict("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)\n" * 2 + PROGRESS)
    assert found is not None and found.deciding_line.startswith("RuntimeError: mat1")


def test_an_error_while_a_checkpoint_is_written_is_the_checkpoints():
    error = "OSError: [Errno 116] Stale file handle"
    assert (reason(SAVING + error), reason(error)) == ("model_ckpt_error", "incorrect_inputs")
    assert reason(SAVING + "saved checkpoint to /ckpt/a.pt\n" + error) == "incorrect_inputs"


def test_a_survived_error_decides_only_when_nothing_else_does():
    assert verdict(OOM + "\n" + PROGRESS, ended=None) is None
    assert reason(OOM + "\n" + PROGRESS) == "gpu_out_of_memory"
    assert reason(OOM + "\n" + PROGRESS + FRAMES + "ValueError: bad depth\n") == "semantic_error"
    assert reason(OOM, ended=None) == "gpu_out_of_memory"


def test_another_ranks_progress_does_not_make_an_error_survived():
    assert reason(f"[rank1]: {OOM}\n" + PROGRESS, ended=None) == "gpu_out_of_memory"


def test_handled_errors_decide_nothing():
    assert reason("shard 7: HTTP Error 503: Service Unavailable, retrying in 2 s\n") == "no_signature"
    assert reason("warning: Permission denied: '/cache', using /tmp instead\n") == "no_signature"


def test_a_traceback_after_a_line_that_says_so_was_handled():
    assert verdict("Exception ignored in: <function Pool.__del__>\n" + FRAMES + "OSError: closed\n", None) is None
    assert reason("ERROR:data: will retry\n" + FRAMES + "OSError: closed\n" + FRAMES + OOM) == "gpu_out_of_memory"
    assert reason("ERROR:data: will retry\nnext shard\n" + FRAMES + "OSError: closed\n") == "incorrect_inputs"


def test_code_that_a_traceback_shows_decides_nothing():
    shown = '    raise MemoryError("no room")\n'
    assert reason(FRAMES + shown + "app.StageFailed: stage 3\n") == "traceback_from_crash"


def test_a_traceback_without_its_beginning_is_one():
    assert reason('  File "/w/train.py", line 3, in main\n    go()\nStageFailed: stage 3\n') == "traceback_from_crash"


def test_progress_of_another_thread_is_not_the_error_of_a_traceback():
    found = verdict(FRAMES + "step 7/9 loss 1.0\n    go()\nStageFailed: stage 3\n")
    assert found is not None and found.deciding_line == "StageFailed: stage 3"


def test_the_first_error_of_a_chain_goes_before_what_wraps_it():
    log = FRAMES + "KeyError: 'width'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    found = verdict(log + FRAMES + "RuntimeError: cannot build the model\n")
    assert found is not None and found.deciding_line == "KeyError: 'width'"


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (Ended(signal=11), "invalid_mem_access"),
        (Ended(exit_code=139), "invalid_mem_access"),
        (Ended(exit_code=134), "core_dump"),
        (Ended(signal=9), "cpu_out_of_memory"),
        (Ended(signal=9, memory_signs=True), "cpu_out_of_memory"),
        (Ended(signal=9, memory_signs=False), "no_signature"),
        (Ended(exit_code=137, memory_signs=False), "no_signature"),
        (Ended(signal=11, memory_signs=False), "invalid_mem_access"),
        (Ended(signal=15), "no_signature"),
        (Ended(exit_code=127), "semantic_error"),
        (Ended(exit_code=3), "no_signature"),
        (Ended(exit_code=0), ""),
        (Ended(), "no_signature"),
    ],
)
def test_without_lines_the_status_decides(ended: Ended, expected: str):
    assert reason("", ended) == reason(PROGRESS, ended) == expected


def test_a_kill_without_signs_of_memory_is_from_outside_whatever_a_shell_says_of_it():
    killed, log = Ended(exit_code=137, memory_signs=False), PROGRESS + "bash: line 1: 4120 Killed    python train.py\n"
    assert reason(log, Ended(exit_code=137)) == "cpu_out_of_memory"
    found = verdict(log, killed)
    assert found is not None and (found.cause, found.category) == ("killed_from_outside", "infrastructure")
    evidence = "Memory cgroup out of memory: Killed process 8123 (python) total-vm:81220412kB, anon-rss:41000000kB\n"
    assert reason(log + evidence, killed) == "cpu_out_of_memory", "a line of the kernel is one"
    assert said(killed) == "killed by signal 9 (SIGKILL), by nobody that Sanjaya knows of"


def test_an_exit_status_is_said_in_words():
    ends = (Ended(exit_code=3), Ended(exit_code=139), Ended())
    assert [said(ended) for ended in ends] == ["exit code 3", "killed by signal 11 (SIGSEGV)", "no exit code"]


def test_an_abort_is_a_consequence_and_a_crash_is_a_cause():
    assert reason(PEER, Ended(signal=6)) == "mpi_runtime_failure"
    assert reason(PEER, Ended(signal=11)) == "invalid_mem_access"


@pytest.mark.parametrize(
    "log",
    [
        OOM.encode() + b"\r\n",
        b" 12%|## | 1/9\r 13%|## | 2/9\r" + OOM.encode(),
        b"\x1b[31m" + OOM.encode() + b"\x1b[0m\n",
        b"\xff\xfe\x00\n" + OOM.encode() + b"\xff\n",
        b"2026-07-30T03:36:29.7354318Z [rank2]: " + OOM.encode(),
        b"x" * 300_000 + OOM.encode() + b"y" * 700_000,
    ],
    ids=["crlf", "carriage returns", "colours", "binary", "prefixes", "long line"],
)
def test_broken_text_hides_nothing(log: bytes):
    assert reason(log) == "gpu_out_of_memory"


def test_many_ranks_by_turns_are_read_with_a_bounded_state():
    classifier = Classifier(package_rules())
    for rank in range(3000):
        classifier.feed_line(f"[rank{rank}]: {PEER if rank % 7 else 'step 1 loss 2'}".encode())
    classifier.feed_line(f"[rank2999]: {OOM}".encode())
    found = classifier.verdict(FAILED)
    assert found is not None and (found.reason, found.rank) == ("gpu_out_of_memory", 2999)
    assert len(found.evidence) <= 20


def test_a_rule_for_another_stream_leaves_a_line_alone():
    line = b"pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0"
    for stream, expected in (("kernel", "cuda_failure"), ("stdout", "no_signature")):
        classifier = Classifier(package_rules())
        classifier.feed_line(line, stream=stream)
        found = classifier.verdict(FAILED)
        assert found is not None and found.reason == expected


def test_an_xid_names_its_action():
    found = verdict("NVRM: Xid (PCI:0000:3b:00): 79, pid=811, name=python, GPU has fallen off the bus.\n")
    assert found is not None and (found.cause, found.action) == ("xid_79", "RESTART_BM")
