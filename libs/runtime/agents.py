"""What agents serve of their jobs, files and stacks: asked for with the cell's key, passed on as it comes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx2

from libs.node.serving import SIGNED, SIGNED_FOR_NODE, Agent, node_key, signed

_CONNECT_S, _SILENT_S = 5.0, 60.0
"""An agent hashes up to 64 MiB from its disk before the first byte."""


class AgentAway(Exception):
    """The agent does not answer; the message says where it was expected, and why it cannot be reached."""


@dataclass(frozen=True)
class JobPath:
    """A path among the files of an attempt."""

    job_id: str
    attempt: int
    path: str = ""


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

    def can_ask(self, agent: Agent) -> bool:
        """Whether this process and the agent have agreed on a key, as far as that is known."""
        return self._key is not None and agent.port > 0

    async def ask(
        self, agent: Agent, what: str, wanted: JobPath, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """The head of an answer; the body is still to be read, and the answer to be closed.

        Args:
            what: `list`, `read` or `stacks`.
            headers: of the request, passed on.

        Raises:
            AgentAway: nothing answers there.
        """
        fields = {"job": wanted.job_id, "attempt": wanted.attempt, "path": wanted.path}
        address, proof = self.signed(agent, f"/{what}?{urlencode(fields)}")
        request = self._http.build_request("GET", f"http://{address}", headers={**(headers or {}), **proof})
        try:
            return await self._http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise away(agent, error) from None

    def signed(self, agent: Agent, target: str) -> tuple[str, dict[str, str]]:
        """Address and target of a request, and the headers that prove where it comes from: the agent knows one key."""
        assert self._key is not None, "asked before (can_ask)"
        keys = {SIGNED: self._key, SIGNED_FOR_NODE: node_key(self._key, agent.node_id)}
        proof = {header: signed(key, agent.node_id, target, time.time()) for header, key in keys.items()}
        return f"{_address(agent)}{target}", proof

    def key_of(self, node_id: str) -> bytes | None:
        """The secret of one node, for its agent; None where this process has no key."""
        return None if self._key is None else node_key(self._key, node_id)

    async def stacks(self, agent: Agent, job_id: str, attempt: int) -> list[dict[str, Any]]:
        """What the processes of an attempt do on the agent's node: `rank`, `pid`, `text` and `note` of each.

        Raises:
            AgentAway: it does not answer, or has no running task of the attempt.
        """
        found = await self.ask(agent, "stacks", JobPath(job_id, attempt))
        try:
            content = json.loads(await found.aread())
        except (httpx2.TransportError, ValueError) as error:
            raise AgentAway(f"the agent of node {agent.node_id} broke off: {error!r}") from None
        finally:
            await found.aclose()
        if found.is_error:
            raise AgentAway(f"node {agent.node_id}: {content.get('detail', f'status {found.status_code}')}")
        items: list[dict[str, Any]] = content["items"]
        return items

    async def aclose(self) -> None:
        """Give back the connections."""
        await self._http.aclose()


def away(agent: Agent, error: Exception) -> AgentAway:
    """The error to raise where nothing answers."""
    return AgentAway(f"the agent of node {agent.node_id} does not answer at {_address(agent)}: {error!r}")


def _address(agent: Agent) -> str:
    host = f"[{agent.address}]" if ":" in agent.address else agent.address
    return f"{host}:{agent.port}"
