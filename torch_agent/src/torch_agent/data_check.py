"""Compares a job's data with its schema, as a process of its own: what reads files of others may end badly.

python -m torch_agent.data_check < request.json > report.json
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import msgspec

from libs.contracts.agent import DataChecked
from libs.contracts.bad_input import BadInput
from libs.contracts.placement import LaunchTask
from libs.datasets.checking import ToolsMissing, check_files
from libs.datasets.findings import Report
from libs.datasets.schema import schema_of
from torch_agent.asking import said_by

log = logging.getLogger(__name__)


class DataWrong(Exception):
    """A job's data is not as its schema says; the message names the first place."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be compared."""

    data_schema: str
    """JSON Schema of a row."""
    data: list[str]
    """Paths and patterns, from the working directory on."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What has come of it."""

    report: Report | None = None
    wrong: str = ""
    """Why there is no report, and the job is to blame: a path that is not there."""
    missing: str = ""
    """Why there is none, and this node is: what has to be installed."""


def answer(request: Request) -> Answer:
    """Compare; whatever goes wrong is the answer."""
    try:
        return Answer(report=check_files(schema_of(request.data_schema, "data_schema"), request.data))
    except BadInput as error:
        return Answer(wrong=str(error))
    except ToolsMissing as error:
        return Answer(missing=str(error))


async def check_data(order: LaunchTask, cwd: Path) -> DataChecked:
    """Compare a trial's data with its schema, in a process in its working directory.

    Raises:
        DataWrong: a path is not there, or the check has ended by itself.
    """
    request = msgspec.json.encode(Request(data_schema=order.trial_schema, data=order.trial_data))
    paths = os.pathsep.join(path for path in sys.path if path)
    said = await said_by(
        *(sys.executable, "-m", __name__), given=request, cwd=cwd, environment={**os.environ, "PYTHONPATH": paths}
    )
    if said.code != 0:
        raise DataWrong(f"the check of {', '.join(order.trial_data)} ended with {said.code}: {said.last_line}")
    found = msgspec.json.decode(said.out, type=Answer)
    if found.wrong:
        raise DataWrong(found.wrong)
    if found.report is None:
        log.warning("%s: data is not checked: %s", order.job_id, found.missing)
    report = found.report or Report(files=0, rows=0, complete=False, violations=[])
    return DataChecked(
        job_id=order.job_id,
        attempt=order.attempt,
        node_id=order.node_id,
        data=order.trial_data,
        files=report.files,
        rows=report.rows,
        complete=report.complete,
        violations=report.violations,
    )


def first_of(checked: DataChecked) -> str:
    """The first violation, as a sentence."""
    first = checked.violations[0]
    row = f", row {first.row}" if first.row is not None else ""
    column = f", column {first.column}" if first.column else ""
    more = f" (and {len(checked.violations) - 1} more)" if len(checked.violations) > 1 else ""
    return f"data is not as its schema says: {first.file}{row}{column}: {first.value}; expected {first.expected}{more}"


if __name__ == "__main__":
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    sys.stdout.buffer.write(msgspec.json.encode(answer(given)))
