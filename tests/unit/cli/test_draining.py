"""What is said of the jobs of a node that is to be drained."""

from __future__ import annotations

import dataclasses

import pytest

from libs.cli.draining import OnNode, fate

JOB = OnNode(
    id="j-1",
    name="a",
    gpus=1,
    state="RUNNING",
    restartable=False,
    movable=False,
    ran_s=7380.0,
    minibatches=0,
)


@pytest.mark.parametrize(
    ("changes", "moves_live", "now", "said"),
    [
        ({}, True, False, "runs on here to its end"),
        ({"state": "SUSPENDED", "held": True}, True, False, "stays paused here"),
        ({}, True, True, "starts again from zero elsewhere: 2h of work is lost"),
        ({"minibatches": 41_000}, True, True, "41k mini-batches in 2h are lost"),
        ({}, False, False, "starts again from zero elsewhere"),
        ({"restartable": True}, True, False, "starts again from its checkpoint"),
        ({"restartable": True}, False, True, "starts again from its checkpoint"),
        ({"movable": True}, True, False, "moves with its state; where there is no room it stays to its end"),
        ({"movable": True}, True, True, "moves with its state; where there is no room starts again from zero"),
    ],
)
def test_each_job_is_told_its_fate(changes: dict[str, object], moves_live: bool, now: bool, said: str):
    assert said in fate(dataclasses.replace(JOB, **changes), moves_live=moves_live, now=now)
