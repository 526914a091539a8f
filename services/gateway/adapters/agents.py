"""Agents' files: asked for with the cell's key, passed on as they come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx2

from libs.contracts.read_models import NodeRow
from libs.node.serving import SIGNED, signed

_CONNECT_S, _SILENT_S = 5.0, 60.0
"""An agent hashes up to 64 MiB from its disk before the first byte."""


class AgentAway(Exception):
    """The agent does not answer; the message says where it was expected, and why it cannot be reached."""


@dataclass(frozen=True)
class JobPath:
    """A path among the files of an attempt."""

    job_id: str
    attempt: int
    path: str


class Agents:
    """A client of all agents.

    Args:
        key: the cell's; None: nothing can be asked.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        timeout = httpx2.Timeout(_SILENT_S, connect=_CONNECT_S)
        # Agents are asked by http:// alone, see `ask`: there is no certificate to verify, and to read those of the
        # authorities takes 50 ms.
        self._http = httpx2.AsyncClient(timeout=timeout, trust_env=False, verify=False)

    def can_ask(self, node: NodeRow) -> bool:
        """Whether the gateway and the agent have agreed on a key, as far as that is known."""
        return self._key is not None and node.files_port > 0

    async def ask(self, node: NodeRow, what: str, wanted: JobPath, headers: Mapping[str, str]) -> httpx2.Response:
        """The head of an answer; the body is still to be read, and the answer to be closed.

        Args:
            what: `list` or `read`.
            headers: of the request, passed on.

        Raises:
            AgentAway: nothing answers there.
        """
        assert self._key is not None, "asked before (can_ask)"
        fields = {"job": wanted.job_id, "attempt": wanted.attempt, "path": wanted.path}
        target = f"/{what}?{urlencode(fields)}"
        host = f"[{node.address}]" if ":" in node.address else node.address
        proof = {SIGNED: signed(self._key, node.id, target, time.time())}
        request = self._http.build_request(
            "GET", f"http://{host}:{node.files_port}{target}", headers={**headers, **proof}
        )
        try:
            return await self._http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise AgentAway(
                f"the agent of node {node.id} does not answer at {host}:{node.files_port}: {error!r}"
            ) from None

    async def close(self) -> None:
        """Give back the connections."""
        await self._http.aclose()
