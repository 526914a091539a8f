"""Browsers are logged in by a link with a code that is good once: it becomes a cookie, which stands for a token.

The token itself is never in a link, which stays in histories, nor within reach of the page's scripts.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

CODE_VALID_S = 600.0
COOKIE_VALID_S = 7 * 86_400.0


class Browsers:
    """Codes, which end with the process, and cookies, which outlive it.

    Args:
        key: the cell's; None: cookies end with the process as well.
        port: of the gateway: browsers keep one set of cookies for all ports of a host.
        now: seconds since the epoch.
    """

    def __init__(self, key: bytes | None, port: int, now: Callable[[], float]) -> None:
        self.cookie = f"sanjaya-{port}"
        self._key = hashlib.sha256(b"cookies of browsers\0" + (key or secrets.token_bytes(32))).digest()
        self._now = now
        self._codes: dict[str, tuple[str, float]] = {}

    def code_for(self, token_id: str) -> str:
        """A code that lets one browser in with the rights of a token (`Principal.token_id`)."""
        now = self._now()
        self._codes = {code: kept for code, kept in self._codes.items() if kept[1] > now}
        code = secrets.token_urlsafe(24)
        self._codes[code] = token_id, now + CODE_VALID_S
        return code

    def enter(self, code: str) -> str | None:
        """The value of the cookie for a code, which is used up; None: it was used up before, is old, or is unknown."""
        token_id, until_s = self._codes.pop(code, ("", 0.0))
        if until_s <= self._now():
            return None
        kept = f"{token_id}.{int(self._now() + COOKIE_VALID_S)}"
        return f"{kept}.{self._signature(kept)}"

    def token_id(self, cookie: str) -> str | None:
        """Which token a cookie stands for; None: it is old, or not from here."""
        kept, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._signature(kept).encode()):
            return None
        token_id, _, until_s = kept.partition(".")
        return token_id if int(until_s) > self._now() else None

    def _signature(self, kept: str) -> str:
        return hmac.new(self._key, kept.encode(errors="replace"), hashlib.sha256).hexdigest()
