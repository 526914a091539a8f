"""The cell's gateway as an agent asks it for uploaded code: by its URL, with the agent's token, over TLS."""

from __future__ import annotations

import ssl
import urllib.request
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import cast

from libs.bus.http.token import JoinToken, pinned


@dataclass(frozen=True)
class CellGateway:
    """Where it is, and with which token it is asked."""

    url: str
    token: str = ""
    """See `JoinToken`; empty: none is sent."""

    def open(self, path: str, timeout_s: float) -> HTTPResponse:
        """The answer to a GET; the caller closes it. Blocking.

        Raises:
            OSError: it does not answer, or refuses.
            BusError: it has another certificate than the token says, or does not answer.
        """
        known = JoinToken.parse(self.token)
        request = urllib.request.Request(f"{self.url}{path}")
        if known.secret:
            request.add_unredirected_header("Authorization", f"Bearer {known.secret}")
        return cast(HTTPResponse, urllib.request.urlopen(request, timeout=timeout_s, context=self._context(known)))

    def _context(self, known: JoinToken) -> ssl.SSLContext | None:
        is_pinned = self.url.startswith("https:") and known.fingerprint
        return pinned(self.url, known.fingerprint) if is_pinned else None
