"""Requests to the gateway: sent, answered or refused, and with patience when the gateway is away."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from typing import Any, TypeVar

import httpx2
import msgspec

from libs.bus.http.protocol import ERRORS, MAX_REQUEST_BYTES, MEDIA_TYPE, ROOT, Lost
from libs.bus.port import BusError, BusUnavailable, MessageTooLarge, OffsetLost, OutcomeUnknown

log = logging.getLogger(__name__)

A = TypeVar("A")

CONNECT_S = 10.0
ANSWER_S = 45.0
"""The longest silence of the gateway in the midst of a request; what a read waits is added. A commit waits at most 30 s
for other writers of an embedded log."""
KEPT_S = 3.0
"""How long an idle connection is used again; the gateway closes it after 5 s."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
"""Failures before anything of a request could have arrived."""
_SERVER_ERRORS = 500


class Pauses:
    """How long to leave an unreachable gateway alone: twice as long each time, and no two clients in step."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pause_s = FIRST_PAUSE_S
        self._until_s = 0.0
        self._away_since_s: float | None = None

    async def over(self) -> None:
        """Wait until the gateway may be asked again."""
        left_s = self._until_s - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(left_s)

    def failed(self, why: BaseException) -> None:
        """It did not answer."""
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
            log.warning("waiting for the gateway at %s: %s", self._url, said(why))
        if now_s >= self._until_s:  # several requests that fail together are one failure
            self._until_s = now_s + self._pause_s * random.uniform(0.5, 1.0)
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)

    def answered(self) -> None:
        """It did."""
        if self._away_since_s is not None:
            away_s = time.monotonic() - self._away_since_s
            log.info("the gateway at %s answers again, after %.1f s", self._url, away_s)
        self._pause_s, self._until_s, self._away_since_s = FIRST_PAUSE_S, 0.0, None


class Connection:
    """To one gateway. Used by the bus, its sessions and its readers alike."""

    def __init__(self, url: str, secret: str, context: ssl.SSLContext | bool) -> None:
        """Prepare; nothing is sent yet.

        Args:
            secret: of the token; empty: none is sent.
            context: how the gateway's certificate is verified.
        """
        self.url = url
        headers = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        limits = httpx2.Limits(max_connections=None, keepalive_expiry=KEPT_S)
        self._http = httpx2.AsyncClient(
            base_url=url, headers=headers, verify=context, limits=limits, trust_env=False, timeout=ANSWER_S
        )
        self.use_secret(secret)
        self._pauses = Pauses(url)
        self._closed = False

    def use_secret(self, secret: str) -> None:
        """Send this secret from now on; empty: none."""
        self._http.headers.pop("Authorization", None)
        if secret:
            self._http.headers["Authorization"] = f"Bearer {secret}"

    async def ask(self, path: str, question: msgspec.Struct, answer: type[A], wait_s: float = 0.0) -> A:
        """One request, sent once.

        Args:
            path: behind `ROOT`.
            answer: the type of what is to come.
            wait_s: how long the gateway is asked to wait.

        Raises:
            BusUnavailable: no gateway answers, and nothing of the request has reached one.
            OutcomeUnknown: the answer did not come; the request may have been followed.
            BusError: what the gateway says.
        """
        body = msgspec.msgpack.encode(question)
        if len(body) > MAX_REQUEST_BYTES:
            raise MessageTooLarge(
                f"a request of {len(body)} bytes, at most {MAX_REQUEST_BYTES} are accepted; nothing was appended"
            )
        await self._pauses.over()
        if self._closed:
            raise BusError(f"the bus at {self.url} is closed")
        timeout = httpx2.Timeout(ANSWER_S + wait_s, connect=CONNECT_S)
        try:
            found = await self._http.post(f"{ROOT}{path}", content=body, timeout=timeout)
        except _NOT_SENT as error:
            self._pauses.failed(error)
            raise BusUnavailable(f"no gateway answers at {self.url}: {said(error)}") from error
        except httpx2.TransportError as error:
            self._pauses.failed(error)
            raise OutcomeUnknown(f"the gateway at {self.url} has not answered: {said(error)}") from error
        except RuntimeError as error:  # the client was closed meanwhile
            raise BusError(f"the bus at {self.url} is closed") from error
        return self._read(found, answer)

    def _read(self, found: httpx2.Response, answer: type[A]) -> A:
        if found.is_success:
            self._pauses.answered()
            try:
                return msgspec.msgpack.decode(found.content, type=answer)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise BusError(f"what answers at {self.url} is no gateway of this version: {error}") from error
        problem = self._problem(found)
        if isinstance(problem, BusUnavailable):
            self._pauses.failed(problem)
        else:
            self._pauses.answered()
        raise problem

    def _problem(self, found: httpx2.Response) -> BusError:
        """The error that a problem document stands for."""
        try:
            document: dict[str, Any] = msgspec.json.decode(found.content, type=dict[str, Any])
        except (msgspec.DecodeError, msgspec.ValidationError):
            document = {}
        kind = str(document.get("type", "")).rpartition("/")[2]
        detail = str(document.get("detail") or f"status {found.status_code} from {self.url}")
        if kind == "offset-lost":
            lost = msgspec.convert(document["lost"], list[Lost])
            return OffsetLost(detail, {each.partition: each.begin for each in lost})
        if kind in ERRORS:
            return ERRORS[kind](detail)
        if found.status_code >= _SERVER_ERRORS:  # a fault of the gateway, or of what stands before it
            return OutcomeUnknown(f"status {found.status_code} from {self.url}: {detail}")
        return BusError(detail)

    async def close(self) -> None:
        """Break off what is under way, and give back the connections."""
        self._closed = True
        await self._http.aclose()


def said(error: BaseException) -> str:
    """An error of the connection in words; some have none of their own."""
    return str(error) or type(error).__name__
