"""Events of every shell, in sentences."""

from __future__ import annotations

from libs.contracts import runtime
from libs.inspect.sentences.table import tells


@tells(runtime.TimerFired)
def _(e: runtime.TimerFired) -> str:
    return f"the timer that {e.service} asked for fires"


@tells(runtime.ClockRepaired)
def _(e: runtime.ClockRepaired) -> str:
    return f"{e.requested_by} has the services of {e.log} go back to the log's clock" + (
        f": {e.note}" if e.note else ""
    )


@tells(runtime.ServiceStarted)
def _(e: runtime.ServiceStarted) -> str:
    return f"{e.service} {e.version} decides by rules {e.rules[:12]} from here on"
