"""Where the brokers are and how to talk to them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from libs.bus.port import MAX_MESSAGE_BYTES, BusError

REQUEST_BYTES = 2 * MAX_MESSAGE_BYTES
"""Largest request and fetch: a message of the greatest size with its headers, and room to spare."""

REQUEST_TIMEOUT_MS = 10_000
TRANSACTION_TIMEOUT_MS = 15_000
"""How long the transaction of a writer that was killed keeps readers from what comes after it."""
SESSION_BACKOFF_MS = 5
"""The client's 100 ms would be paid at every hop: while a transaction's end is being written, the next is refused."""

PASSED_THROUGH = (
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
)
TLS_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
OWN = ("replication_factor",)


@dataclass(frozen=True)
class Connection:
    """Parsed from `kafka://host:port[,host:port]?security_protocol=SASL_SSL&ssl_cafile=…`."""

    servers: str
    security: dict[str, Any] = field(default_factory=dict)
    replication_factor: int = 1

    @classmethod
    def parse(cls, url: str) -> Connection:
        """Read a bus URL.

        Raises:
            BusError: no servers, or an option that is not known; the message lists those that are.
        """
        parts = urlsplit(url)
        if parts.scheme != "kafka" or not parts.netloc:
            raise BusError(f"bus url {url!r}: expected kafka://host:port[,host:port]")
        options = dict(parse_qsl(parts.query))
        unknown = [name for name in options if name not in (*PASSED_THROUGH, *TLS_FILES, *OWN)]
        if unknown:
            known = ", ".join((*PASSED_THROUGH, *TLS_FILES, *OWN))
            raise BusError(f"bus url: unknown option {unknown[0]!r}; there are {known}")
        security: dict[str, Any] = {name: options[name] for name in PASSED_THROUGH if name in options}
        if options.get("security_protocol", "").endswith("SSL"):
            security["ssl_context"] = _tls(options)
        return cls(parts.netloc, security, int(options.get("replication_factor", "1")))

    @property
    def client(self) -> dict[str, Any]:
        """Arguments common to all of aiokafka's clients."""
        return {
            "bootstrap_servers": self.servers,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            **self.security,
        }


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl_cafile"))
    if "ssl_certfile" in options:
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password"))
    return context
