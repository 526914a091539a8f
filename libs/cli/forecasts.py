"""What would start a job that waits, and when it is expected to start, in words."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from libs.cli.audit import opened
from libs.cli.context import NOT_FOUND, fail
from libs.cli.following import tell
from libs.cli.output import Form, duration, show_document
from libs.client.errors import ClientError
from libs.kernel.words import counted

if TYPE_CHECKING:
    from libs.client import Client
    from libs.client.connection import Json

BASES = {
    "remaining_work": "measured rates",
    "stated_work": "known rates",
    "time_limit": "time limits",
    "residual_life": "how long others of the tenant ran",
    "time_so_far": "how long jobs have run so far",
    "other_jobs": "what is known of other jobs",
}
"""What the lengths of jobs rest on."""


def lines_of_forecast(said: Mapping[str, Any]) -> list[str]:
    """Of the answer at `GET /v1/jobs/{job}/forecast`."""
    shown = [f"  would start at the next decision if {option['message']}" for option in said["options"]]
    if not shown:
        within = "" if said["is_complete"] else " before the search was cut off"
        shown = [f"  nothing that was tried{within} would start it at the next decision"]
    expected = said["expected"]
    return [*shown, f"  {start_of(expected, said['errors'])}"]


def start_of(expected: Mapping[str, Any], errors: Mapping[str, Any]) -> str:
    """When a job is expected to start, what that rests on, and how sure it is."""
    if expected["in_s"] is None:
        return "not expected to start as long as nothing changes"
    if expected["in_s"] <= 0:
        return "expected to start at once"
    basis = expected.get("basis", "")
    rests = f", by {BASES[basis]}" if basis in BASES else ""
    if arrivals := expected.get("arrivals", 0):
        rests += f", with {counted(arrivals, 'job')} that may arrive before"
    return f"expected to start in {duration(expected['in_s'])}{rests}; {_off(errors)}"


def _off(errors: Mapping[str, Any]) -> str:
    if errors["median_ratio"] is None:
        return "how far such expectations are off is not known yet"
    basis = errors.get("basis", "")
    by = f" by {BASES[basis]}" if basis in BASES else ""
    return (
        f"of {errors['expectations']} expectations{by} so far half were off by less than {errors['median_ratio']:.0%} "
        f"of the wait, nine of ten by less than {errors['p90_ratio']:.0%}"
    )


def foreseen_of(cell: Client, found: Json) -> Json | None:
    """What would start the job; None, and it is said: the gateway cannot tell now."""
    try:
        return cell.forecast(found["job_id"])
    except ClientError as error:
        tell(f"what would start it is not known now: {error}")
        return None


def why_on_log(source: str, job_id: str, at: int | None, *, as_json: bool) -> None:
    """Why a job waited, or was where it was, as of an offset of a recorded log, and what would have started it then."""
    import msgspec

    from libs.forecast.answer import forecast
    from libs.forecast.arrivals import Arrivals
    from libs.forecast.branch import CORES, branches
    from libs.inspect.replay import refold
    from libs.inspect.why import why
    from libs.runtime.roster import roster

    end = sys.maxsize if at is None else at
    with opened(source, None, None) as log:
        explanation = why((record for record in log.control() if record.offset < end), job_id)
        if explanation is None:
            before = "the end of the log" if at is None else f"offset {at}"
            fail(f"{job_id} has not arrived before {before}", NOT_FOUND)
        foreseen = None
        if explanation.waits_for:
            arrivals = Arrivals()
            for record in log.control():
                if record.offset < end:
                    arrivals.take(record.envelope)
            services = [service for service in roster().SERVICES if service.name in CORES]
            replicas = refold(log.control(), services, until_offset=end, positions=log.header.positions)
            branched = branches(replicas, explanation.now_s, arrived=arrivals.latest)
            foreseen = forecast(branched, job_id).document()
    if as_json:
        show_document(msgspec.to_builtins(explanation) | {"forecast": foreseen}, Form.JSON)
        return
    typer.echo("\n".join([*explanation.lines(), *(lines_of_forecast(foreseen) if foreseen is not None else ())]))
