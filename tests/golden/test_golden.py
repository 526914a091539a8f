"""A recorded log is reproduced to the byte, whatever the hash seed; a new recording is the old one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from libs.contracts.catalogue import TERMINAL
from libs.inspect.jsonl import write_jsonl
from libs.inspect.sources import open_log
from tests.golden.accept import EXPECTED, LOG, record, recorded

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_golden_log_replays_under_any_hash_seed(hash_seed: str):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-m", "tests.golden.replay"], cwd=ROOT, env=environment, capture_output=True, check=True
    )
    assert done.stdout == EXPECTED.read_bytes()


def test_recording_it_again_gives_the_same_log():
    out = io.BytesIO()
    write_jsonl(recorded(record()), out)
    assert out.getvalue() == LOG.read_bytes(), "if a core is meant to decide otherwise: make golden-accept"


def test_the_golden_log_has_a_bit_of_everything():
    with open_log(str(LOG), cell="golden") as log:
        seen = {type(record.envelope.event).__name__ for record in log.records()}
    assert {cls.__name__ for cls in TERMINAL} <= seen
    assert {"JobPreempted", "MigrationCompleted", "NodeDrained", "NodeLost", "GangReserved", "QuotaDeferred"} <= seen
    assert {
        "JobSuspended",
        "JobResumed",
        "RetryScheduled",
        "JobProfiled",
        "LaunchTask",
        "StopTask",
        "TimerFired",
    } <= seen
