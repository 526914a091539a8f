"""Agents, asked with the cell's key: for files, which are passed on as they come, and for sessions inside jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx2
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus

from libs.contracts.read_models import NodeRow
from libs.contracts.sessions import LARGEST_BYTES
from libs.node.serving import SIGNED, signed

_CONNECT_S, _SILENT_S = 5.0, 60.0
"""An agent hashes up to 64 MiB from its disk before the first byte."""


class AgentAway(Exception):
    """The agent does not answer; the message says where it was expected, and why it cannot be reached."""


class AgentRefused(Exception):
    """The agent answers that it will not; the message says why.

    Attributes:
        status: of its answer.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


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
        self._http = httpx2.AsyncClient(timeout=httpx2.Timeout(_SILENT_S, connect=_CONNECT_S), trust_env=False)

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
        fields = {"job": wanted.job_id, "attempt": wanted.attempt, "path": wanted.path}
        address, proof = self._signed(node, f"/{what}?{urlencode(fields)}")
        request = self._http.build_request("GET", f"http://{address}", headers={**headers, **proof})
        try:
            return await self._http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise _away(node, error) from None

    async def enter(self, node: NodeRow, asked: Mapping[str, str | int]) -> ClientConnection:
        """A WebSocket into a job on the node (`torch_agent/sessions/serving.py`), to be closed by the caller.

        Args:
            asked: the fields of the request.

        Raises:
            AgentAway: nothing answers there.
            AgentRefused: there is nothing to go into.
        """
        address, proof = self._signed(node, f"/session?{urlencode(asked)}")
        try:
            return await connect(
                f"ws://{address}",
                additional_headers=proof,
                compression=None,
                proxy=None,
                open_timeout=_SILENT_S,
                max_size=LARGEST_BYTES,
                ping_timeout=None,  # no answer comes while a command leaves its input unread
            )
        except InvalidStatus as error:
            raise AgentRefused(error.response.status_code, _detail(error.response.body)) from None
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise _away(node, error) from None

    def _signed(self, node: NodeRow, target: str) -> tuple[str, dict[str, str]]:
        """Address and target of a request, and the header that proves where it comes from."""
        assert self._key is not None, "asked before (can_ask)"
        return f"{_address(node)}{target}", {SIGNED: signed(self._key, node.id, target, time.time())}

    async def close(self) -> None:
        """Give back the connections."""
        await self._http.aclose()


def _address(node: NodeRow) -> str:
    host = f"[{node.address}]" if ":" in node.address else node.address
    return f"{host}:{node.files_port}"


def _away(node: NodeRow, error: Exception) -> AgentAway:
    return AgentAway(f"the agent of node {node.id} does not answer at {_address(node)}: {error!r}")


def _detail(body: bytes | bytearray | None) -> str:
    try:
        return str(msgspec.json.decode(body or b"")["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "it does not say why"
