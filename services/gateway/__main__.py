"""`python -m services.gateway [--host H] [--port P]`: the cell's HTTP door."""

from __future__ import annotations

import libs.runtime.starting  # noqa: F401 - first

# isort: split
import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import uvicorn

from libs.runtime.cell_key import KeyUnreadable, read_key
from libs.runtime.exits import CONFIG
from libs.runtime.log import fields
from libs.runtime.process import cell_bus, read_settings, run
from services.gateway.adapters.intake import OnAppended
from services.gateway.adapters.tokens import Tokens, TokensUnreadable
from services.gateway.app import create_app
from services.gateway.door import Gateway
from services.gateway.settings import GatewaySettings

log = logging.getLogger(__name__)

_GRACE_S = 3


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: `libs.runtime.process` has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None are."""
        yield


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code (`libs.runtime.exits`)."""
    parser = argparse.ArgumentParser(prog="python -m services.gateway", description=__doc__)
    parser.add_argument("--host", help="address to listen on (default: of SANJAYA_GATEWAY)")
    parser.add_argument("--port", type=int, help="port to listen on (default: of SANJAYA_GATEWAY)")
    options = parser.parse_args(arguments)
    settings = read_settings(GatewaySettings)
    host, port = settings.address()
    settings.listen = f"{options.host or host}:{options.port if options.port is not None else port}"
    try:
        files = [path for path in (settings.tokens_file, settings.cell_tokens_file) if path is not None]
        tokens = Tokens.read(*files) if files else None
        if settings.cell_key_file:
            read_key(settings.cell_key_file)
    except (TokensUnreadable, KeyUnreadable) as error:
        print(f"error: {error}", file=sys.stderr)
        return CONFIG
    if tokens is None and not settings.anonymous and not settings.on_loopback():
        print(
            f"error: {settings.listen} can be reached from other machines, and every client there could run programs "
            "on the nodes: set SANJAYA_TOKENS_FILE, or SANJAYA_ANONYMOUS=1 if that is what you want",
            file=sys.stderr,
        )
        return CONFIG
    return run(lambda stop: _serve(settings, tokens, stop), "gateway", settings)


async def _serve(settings: GatewaySettings, tokens: Tokens | None, stop: asyncio.Event) -> None:
    async with AsyncExitStack() as closing:
        on_appended: OnAppended | None = None
        if settings.otlp_endpoint:
            from libs.runtime.tracing import to_collector  # loaded only for a collector

            tracer = to_collector("gateway", settings.cell)
            closing.callback(tracer.close)
            on_appended = tracer.appended
        bus = await closing.enter_async_context(cell_bus(settings, stop))
        gateway = Gateway(settings, bus, tokens=tokens, on_appended=on_appended)
        await closing.enter_async_context(gateway.running())
        host, port = settings.address()
        config = uvicorn.Config(
            create_app(gateway),
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE_S,
            server_header=False,
            ws_ping_timeout=None,  # no answer comes while a client's output, or its command's input, stands still
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve())
        log.info("the gateway is open", extra=fields(address=f"http://{host}:{port}", cell=settings.cell))
        ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(gateway.stop.wait()), serving]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        gateway.stop.set()
        server.should_exit = True
        for waiter in ends[:2]:
            waiter.cancel()
        await serving


if __name__ == "__main__":
    sys.exit(main())
