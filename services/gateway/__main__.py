"""`python -m services.gateway [--host H] [--port P]`: the cell's HTTP door."""

from __future__ import annotations

import libs.runtime.starting  # noqa: F401 - first

# isort: split
import argparse
import asyncio
import logging
import ssl
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from libs.runtime.cell_key import KeyUnreadable, read_key
from libs.runtime.exits import CONFIG
from libs.runtime.log import fields
from libs.runtime.process import cell_bus, read_settings, run
from services.gateway.adapters.intake import OnAppended
from services.gateway.adapters.tokens import Tokens, TokensUnreadable
from services.gateway.api.guard import ByTls
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
        agent_tokens = Tokens.read(settings.agent_tokens_file) if settings.agent_tokens_file else None
        if settings.cell_key_file:
            read_key(settings.cell_key_file)
        if settings.tls_certificate_file:
            require_certificate(settings.tls_certificate_file, settings.tls_key_file)
    except (TokensUnreadable, KeyUnreadable, CertificateUnreadable) as error:
        print(f"error: {error}", file=sys.stderr)
        return CONFIG
    if tokens is None and not settings.anonymous and not settings.on_loopback():
        print(
            f"error: {settings.listen} can be reached from other machines, and every client there could run programs "
            "on the nodes: set SANJAYA_TOKENS_FILE, or SANJAYA_ANONYMOUS=1 if that is what you want",
            file=sys.stderr,
        )
        return CONFIG
    return run(lambda stop: _serve(settings, tokens, agent_tokens, stop), "gateway", settings)


class CertificateUnreadable(Exception):
    """The certificate or its key cannot be used; the message says which and why."""


def require_certificate(certificate: Path, key: Path | None) -> None:
    """Make sure that TLS can be served.

    Raises:
        CertificateUnreadable: a file is missing or no PEM, or the key belongs to another certificate.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # an SSLError is an OSError
        raise CertificateUnreadable(f"TLS with {certificate} and the key {key}: {error}") from None


async def _serve(
    settings: GatewaySettings, tokens: Tokens | None, agent_tokens: Tokens | None, stop: asyncio.Event
) -> None:
    async with AsyncExitStack() as closing:
        on_appended: OnAppended | None = None
        if settings.otlp_endpoint:
            from libs.runtime.tracing import to_collector  # loaded only for a collector

            tracer = to_collector("gateway", settings.cell)
            closing.callback(tracer.close)
            on_appended = tracer.appended
        bus = await closing.enter_async_context(cell_bus(settings, stop))
        gateway = Gateway(settings, bus, tokens=tokens, agent_tokens=agent_tokens, on_appended=on_appended)
        await closing.enter_async_context(gateway.running())
        servers = _servers(settings, create_app(gateway))
        serving = [asyncio.create_task(server.serve()) for server in servers]
        for server in servers:
            where = f"{'https' if server.config.is_ssl else 'http'}://{server.config.host}:{server.config.port}"
            log.info("the gateway is open", extra=fields(address=where, cell=settings.cell))
        waiters = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(gateway.stop.wait())]
        await asyncio.wait([*waiters, *serving], return_when=asyncio.FIRST_COMPLETED)
        gateway.stop.set()
        for server in servers:
            server.should_exit = True
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*serving)


def _servers(settings: GatewaySettings, app: FastAPI) -> list[_Server]:
    """One for this machine or a trusted network, and one with TLS where that is wanted."""
    common: dict[str, Any] = {
        "log_config": None,
        "access_log": False,
        "timeout_graceful_shutdown": _GRACE_S,
        "server_header": False,
        "ws_ping_timeout": None,  # no answer comes while a client's output, or its command's input, stands still
    }
    host, port = settings.address()
    servers = [_Server(uvicorn.Config(app, host=host, port=port, **common))]
    if (secure := settings.secure_address()) is not None:
        config = uvicorn.Config(
            ByTls(app),
            host=secure[0],
            port=secure[1],
            ssl_certfile=settings.tls_certificate_file,
            ssl_keyfile=settings.tls_key_file,
            **common,
        )
        servers.append(_Server(config))
    return servers


if __name__ == "__main__":
    sys.exit(main())
