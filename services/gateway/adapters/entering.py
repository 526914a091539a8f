"""Sessions inside jobs, on the agents' side: a WebSocket through the server that an agent's files come from."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus

from libs.contracts.sessions import LARGEST_BYTES
from libs.node.serving import Agent
from libs.runtime.agents import Agents, away

_SILENT_S = 60.0


class AgentRefused(Exception):
    """The agent answers that it will not; the message says why.

    Attributes:
        status: of its answer.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


async def enter(agents: Agents, agent: Agent, asked: Mapping[str, str | int]) -> ClientConnection:
    """A WebSocket into a job on the agent's node (`torch_agent/sessions/serving.py`), to be closed by the caller.

    Args:
        asked: the fields of the request.

    Raises:
        AgentAway: nothing answers there.
        AgentRefused: there is nothing to go into.
    """
    address, proof = agents.signed(agent, f"/session?{urlencode(asked)}")
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
        raise away(agent, error) from None


def _detail(body: bytes | bytearray | None) -> str:
    try:
        return str(msgspec.json.decode(body or b"")["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return "it does not say why"
