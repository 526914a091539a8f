"""An application on a socket, within this process's event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import uvicorn


@asynccontextmanager
async def served(app: Any, **options: Any) -> AsyncIterator[str]:
    """Serve it on a free port of the loopback address; the URL. Options are uvicorn's."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, **options)
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(server.serve([listener]))
    host, port = listener.getsockname()
    try:
        yield f"{'https' if config.is_ssl else 'http'}://{host}:{port}"
    finally:
        server.should_exit = True
        await serving
