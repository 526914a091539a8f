"""`python -m libs.runtime SERVICE`: run one core of the roster until SIGTERM or SIGINT."""

from __future__ import annotations

import libs.runtime.starting  # noqa: F401 - first

# isort: split
import asyncio
import sys
from contextlib import ExitStack
from typing import Any

from libs.kernel.service import Service
from libs.runtime import exits
from libs.runtime.process import cell_bus, read_settings, run
from libs.runtime.roster import RosterMissing, roster
from libs.runtime.serving import metrics, traces
from libs.runtime.settings import Settings
from libs.runtime.shell import Epoch, Options, Shell
from libs.runtime.snapshots import Snapshots
from libs.runtime.stats import Stats


def main(arguments: list[str]) -> int:
    """Run the named service; returns the exit code (`libs.runtime.exits`)."""
    try:
        services = roster()
    except RosterMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return exits.CONFIG
    if len(arguments) != 1:
        print(f"usage: python -m libs.runtime SERVICE\nservices: {', '.join(services.NAMES)}", file=sys.stderr)
        return exits.USAGE
    try:
        service = services.service(arguments[0])
    except KeyError as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return exits.USAGE
    settings = read_settings(Settings)
    return run(lambda stop: _serve(service, settings, stop), service.name, settings)


async def _serve(service: Service[Any], settings: Settings, stop: asyncio.Event) -> None:
    stats = Stats(service.name)
    with ExitStack() as closing:
        tracer = traces(service.name, settings, closing)
        metrics(stats, settings, closing)
        snapshots = Snapshots(settings.database, settings.cell)
        closing.callback(snapshots.close)
        async with cell_bus(settings, stop) as bus:
            shell = Shell(
                service,
                bus,
                snapshots=snapshots,
                options=Options.of(settings),
                stats=stats,
                tracer=tracer,
                epoch=await asyncio.to_thread(Epoch.at_hand, service.name),
            )
            await shell.run(stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
