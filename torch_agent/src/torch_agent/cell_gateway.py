"""The cell's gateway as an agent asks it for uploaded code: by its URL, with the agent's token."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import cast


@dataclass(frozen=True)
class CellGateway:
    """Where it is, and with which token it is asked."""

    url: str
    token: str = ""
    """Empty: none is sent."""

    def open(self, path: str, timeout_s: float) -> HTTPResponse:
        """The answer to a GET; the caller closes it. Blocking.

        Raises:
            OSError: it does not answer, or refuses.
        """
        request = urllib.request.Request(f"{self.url}{path}")
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        return cast(HTTPResponse, urllib.request.urlopen(request, timeout=timeout_s))
