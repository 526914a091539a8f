"""What can go wrong between a client and its cell."""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """The base of the client's errors."""


class Unreachable(ClientError):
    """Nothing answers at the gateway's address."""


class ApiError(ClientError):
    """The gateway's problem document (RFC 9457)."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self.status = status
        self.title: str = document.get("title", f"status {status}")
        self.detail: str = document.get("detail", "")
        self.errors: list[dict[str, Any]] = document.get("errors", [])
        self.did_you_mean: str | None = document.get("did_you_mean")
        super().__init__(self.detail or self.title)
