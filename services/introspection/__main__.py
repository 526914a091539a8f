"""`python -m services.introspection`: the core's shell and the two of telemetry, until SIGTERM or SIGINT."""

from __future__ import annotations

import libs.runtime.starting  # noqa: F401 - first

# isort: split
import asyncio
import sys
from contextlib import ExitStack, aclosing

from libs.bus.port import Bus
from libs.contracts.introspection import OWNER
from libs.runtime.agents import Agents
from libs.runtime.cell_key import KeyUnreadable, read_key
from libs.runtime.clock import SteadyClock
from libs.runtime.exits import CONFIG
from libs.runtime.listener import Listener
from libs.runtime.process import cell_bus, read_settings, run
from libs.runtime.serving import metrics, traces
from libs.runtime.shell import Epoch, Options, Shell
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Stats
from libs.runtime.tasks import all_or_none
from services.introspection.adapters.embedded_windows import EmbeddedWindows
from services.introspection.adapters.ingest import Ingest
from services.introspection.core.watching import WATCH
from services.introspection.service import SERVICE
from services.introspection.settings import IntrospectionSettings


def main() -> int:
    """Run until stopped; returns the exit code (`libs.runtime.exits`)."""
    settings = read_settings(IntrospectionSettings)
    try:
        key = read_key(settings.cell_key_file) if settings.cell_key_file else None
    except KeyUnreadable as error:
        print(f"error: {error}", file=sys.stderr)
        return CONFIG
    return run(lambda stop: _serve(settings, key, stop), OWNER, settings)


async def _serve(settings: IntrospectionSettings, key: bytes | None, stop: asyncio.Event) -> None:
    stats, clock = Stats(OWNER), SteadyClock()
    with ExitStack() as closing:
        metrics(stats, settings, closing)
        snapshots = Snapshots(settings.database, settings.cell)
        closing.callback(snapshots.close)
        agents = Agents(key)
        async with cell_bus(settings, stop) as bus, aclosing(agents):
            control = Listener(
                WATCH,
                bus,
                snapshots,
                clock,
                stats,
                every_records=settings.snapshot_every_records,
                every_s=settings.snapshot_every_s,
            )
            ingest = Ingest(
                bus,
                control,
                clock,
                stats,
                interval_s=settings.profile_interval_s,
                lost_after_s=settings.lease.lost_s,
                stuck_after_s=settings.stuck_after_s,
                limits=settings.limits,
                agents=agents,
                tracer=traces(OWNER, settings, closing),
            )
            judge = Shell(
                SERVICE,
                bus,
                snapshots=snapshots,
                clock=clock,
                options=Options.of(settings),
                epoch=await asyncio.to_thread(Epoch.at_hand, OWNER),
            )
            await all_or_none(stop, judge.run(stop), ingest.run(stop), _windows(settings, bus, stop))


async def _windows(settings: IntrospectionSettings, bus: Bus, stop: asyncio.Event) -> None:
    """The windowed aggregation: on Faust when the bus is Kafka, by itself otherwise."""
    if settings.bus.startswith("kafka:"):
        from services.introspection.adapters.faust_windows import (
            FaustWindows,
        )  # Faust is loaded on Kafka alone

        await FaustWindows(settings.bus, settings.cell, settings.rules, SteadyClock()).run(stop)
    else:
        await EmbeddedWindows(bus, settings.rules, SteadyClock()).run(stop)


if __name__ == "__main__":
    sys.exit(main())
