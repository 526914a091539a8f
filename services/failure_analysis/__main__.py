"""`python -m services.failure_analysis`: the core's shell and the one that follows lines, until SIGTERM or SIGINT."""

from __future__ import annotations

import libs.runtime.starting  # noqa: F401 - first

# isort: split
import asyncio
import sys
from contextlib import ExitStack

from libs.contracts.failure_analysis import OWNER
from libs.runtime.clock import SteadyClock
from libs.runtime.listener import Listener
from libs.runtime.process import cell_bus, read_settings, run
from libs.runtime.serving import metrics, traces
from libs.runtime.shell import Epoch, Options, Shell
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Stats
from libs.runtime.tasks import all_or_none
from services.failure_analysis.adapters.lines import Lines
from services.failure_analysis.adapters.own_rules import OwnRules
from services.failure_analysis.core.watching import WATCH
from services.failure_analysis.service import SERVICE
from services.failure_analysis.settings import FailureSettings


def main() -> int:
    """Run until stopped; returns the exit code (`libs.runtime.exits`)."""
    settings = read_settings(FailureSettings)
    return run(lambda stop: _serve(settings, stop), OWNER, settings)


async def _serve(settings: FailureSettings, stop: asyncio.Event) -> None:
    stats, clock = Stats(OWNER), SteadyClock()
    with ExitStack() as closing:
        tracer = traces(OWNER, settings, closing)
        metrics(stats, settings, closing)
        snapshots = Snapshots(settings.database, settings.cell)
        closing.callback(snapshots.close)
        async with cell_bus(settings, stop) as bus:
            shell = Shell(
                SERVICE,
                bus,
                snapshots=snapshots,
                clock=clock,
                options=Options.of(settings),
                stats=stats,
                tracer=tracer,
                epoch=await asyncio.to_thread(Epoch.at_hand, OWNER),
            )
            control = Listener(
                WATCH,
                bus,
                snapshots,
                clock,
                of_lines := Stats(WATCH.name),
                every_records=settings.snapshot_every_records,
                every_s=settings.snapshot_every_s,
            )
            lines = Lines(bus, control, clock, of_lines, OwnRules(settings.rules_folder))
            await all_or_none(stop, lines.run(stop), judge(shell, lines, stop))


async def judge(shell: Shell, lines: Lines, stop: asyncio.Event) -> None:
    """Run the core's shell as soon as it can be told of lines."""
    if await lines.caught_up(stop):
        await shell.run(stop)


if __name__ == "__main__":
    sys.exit(main())
