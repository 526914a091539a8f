"""A log with failures is audited where a newer set of failure rules is installed: what was decided stays decided."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from libs.bus.connect import connect
from libs.bus.port import TopicLayout
from libs.contracts.agent import JobExited
from libs.contracts.base import Event
from libs.contracts.failure_analysis import OWNER, FailureClassified, FailureObserved, RulesLoaded
from libs.contracts.placement import AttemptFailed, JobPlaced, JobSucceeded
from libs.runtime.shell import Epoch, Shell
from libs.runtime.tasks import all_or_none
from libs.testing.core_case import node
from libs.testing.faults import Faults, FaultyBus
from libs.testing.processes import ROOT
from services.failure_analysis.__main__ import judge
from services.failure_analysis.adapters.own_rules import OwnRules
from services.failure_analysis.service import SERVICE
from tests.e2e.second_tree import Replacement, environment, second_tree
from tests.integration.test_failure_lines import BROKEN, CAUSES, events, following, give, history

NEWER = Replacement(
    "libs/failures/rules/python.yaml",
    "  - id: json_config_syntax\n    reason: incorrect_inputs\n    cause: json_broken\n",
    "  - id: json_config_syntax\n    reason: syntax_error\n    cause: syntax\n",
)
"""A line that decided on the log has another reason and another cause."""
OWN = r"""rules:
  - id: our_loss
    reason: syntax_error
    cause: syntax
    category: user
    rank: 1
    pattern: 'step \d+ loss 0\.5$'
    example: step 1 loss 0.5
    counter_example: step 1 loss 0.25
"""
AUDIT = """
import sys, msgspec
from libs.failures.classifier import Classifier
from libs.failures.package import package_rules
from libs.failures.verdict import Ended
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from services.failure_analysis.service import SERVICE

judging = Classifier(package_rules())
judging.feed(sys.argv[2])
with open_log(sys.argv[1], cell="local") as log:
    found = msgspec.to_builtins(verify(log, [SERVICE]))
found["digest"], found["cause"] = package_rules().digest, judging.verdict(Ended(exit_code=1, signal=None)).cause
print(msgspec.json.encode(found).decode())
"""


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return second_tree(tmp_path_factory.mktemp("newer") / "tree", [NEWER])


def on_two_nodes(said: Iterable[Event]) -> Iterator[Event]:
    """The history with nodes that have the GPUs, and tasks that end on them: its books balance."""
    yield from (node("n1", 8), node("n2", 8))
    for number, event in enumerate(said):
        match event:
            case JobPlaced():
                yield replace(event, gang=[replace(task, gpu_indices=[number % 8]) for task in event.gang])
            case AttemptFailed() | JobSucceeded():
                code = 0 if isinstance(event, JobSucceeded) else 1
                for node_id in ("n1", "n2"):
                    yield JobExited(
                        job_id=event.job_id, attempt=1, node_id=node_id, exit_code=code, signal=None, outcome="exited"
                    )
                yield event
            case _:
                yield event


async def recorded(folder: Path, own: OwnRules) -> tuple[Path, FaultyBus]:
    """The log of a failure analysis that has followed the lines of jobs which fail, until each has its verdict."""
    bus = FaultyBus(await connect(f"sqlite:///{folder / 'log.db'}", "local"), Faults())
    await bus.create_topics(TopicLayout())
    await give(bus, RulesLoaded(digest="before", rules=1), *on_two_nodes(history()))
    stop, lines = asyncio.Event(), following(bus, own)
    shell = Shell(SERVICE, bus, epoch=await asyncio.to_thread(Epoch.at_hand, OWNER))
    running = asyncio.create_task(all_or_none(stop, lines.run(stop), judge(shell, lines, stop)))
    async with asyncio.timeout(120):
        while len(await events(bus, FailureClassified)) < len(CAUSES):
            assert not running.done()
            await asyncio.sleep(0.01)
    stop.set()
    await running
    return folder / "log.db", bus


async def audited(tree: Path, log: Path) -> dict[str, Any]:
    """What the code of a tree says of the log, and what its rules make of the line that decided."""
    command = [sys.executable, "-c", AUDIT, str(log), BROKEN]
    run = asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment(tree), capture_output=True, text=True, check=False
    )
    done = await run
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_a_newer_set_in_the_package_changes_no_verdict_of_the_log(tmp_path: Path, newer: Path):
    log, bus = await recorded(tmp_path, OwnRules(None))
    await bus.close()
    then, now = await audited(ROOT, log), await audited(newer, log)
    assert (then["cause"], now["cause"]) == ("json_broken", "syntax")
    assert then["digest"] != now["digest"]
    assert (then["differences"], then["versions"], then["refolded"]) == (0, 0, 0)
    assert (now["differences"], now["versions"], now["decisions"]) == (0, 1, 0)
    assert then["decisions"] == now["refolded"] > len(CAUSES)
    assert then["state_hashes"] == now["state_hashes"]


async def test_verdicts_by_rules_of_the_operators_are_decided_again_where_these_are_not_installed(tmp_path: Path):
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "ours.yaml").write_text(OWN)
    log, bus = await recorded(tmp_path, OwnRules(folder))
    verdicts = {event.subject: event.cause for event in await events(bus, FailureClassified)}
    seen = {event.digest for event in await events(bus, FailureObserved)}
    await bus.close()
    found = await audited(ROOT, log)
    assert verdicts["killed"] == "syntax" != CAUSES["killed"]
    assert len(seen) == 1 and found["digest"] not in seen
    assert (found["differences"], found["refolded"]) == (0, 0)
    assert found["decisions"] > len(CAUSES)
