"""`python -m services.projection [--rebuild] [--once]`: keep the read models up to date with the log."""

from __future__ import annotations

import libs.runtime.starting  # noqa: F401 - first

# isort: split
import argparse
import asyncio
import logging
import sys
from contextlib import ExitStack

from libs.contracts.wire import Undecodable
from libs.runtime.exits import CoreFailed
from libs.runtime.log import fields
from libs.runtime.process import cell_bus, read_settings, run
from services.projection.adapters.follow import DatabaseUnusable, Projection
from services.projection.adapters.read_model import AnotherWriter, WrongCell
from services.projection.adapters.stats import Stats, expose
from services.projection.adapters.store import Store
from services.projection.settings import ProjectionSettings

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, or with `--once` until the log's present end.

    Returns:
        The exit code (`libs.runtime.exits`).
    """
    parser = argparse.ArgumentParser(prog="python -m services.projection", description=__doc__)
    parser.add_argument("--rebuild", action="store_true", help="make the read models anew from the whole log")
    parser.add_argument("--once", action="store_true", help="end when the log's present end is reached")
    options = parser.parse_args(arguments)
    settings = read_settings(ProjectionSettings)
    return run(lambda stop: _serve(settings, stop, rebuild=options.rebuild, once=options.once), "projection", settings)


async def _serve(settings: ProjectionSettings, stop: asyncio.Event, *, rebuild: bool, once: bool) -> None:
    stats = Stats()
    with ExitStack() as closing:
        if settings.metrics_port:
            from libs.runtime.metrics import MetricsPort  # loaded only for a port

            port = MetricsPort("projection", settings.cell, settings.metrics_host, settings.metrics_port, stats.health)
            closing.callback(port.close)
            expose(stats, port.meter)
        store = Store(settings.database, settings.cell)
        closing.callback(store.close)
        async with cell_bus(settings, stop) as bus:
            projection = Projection(bus, store, stop, batch=settings.projection_batch, stats=stats)
            try:
                if once:
                    position = await projection.catch_up(rebuild=rebuild)
                    log.info("the read models are up to date", extra=fields(next_offset=position))
                else:
                    await projection.run(rebuild=rebuild)
            except (Undecodable, WrongCell, AnotherWriter, DatabaseUnusable) as error:
                raise CoreFailed(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
