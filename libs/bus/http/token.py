"""The token with which an agent joins a cell: its secret, and the certificate that the gateway must have."""

from __future__ import annotations

import hashlib
import re
import secrets
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from libs.bus.port import BusError, BusUnavailable, Refused

PREFIX = "sanjaya1"
"""Of the form below; another form gets another number."""
CONNECT_S = 10.0
_FORM = re.compile(rf"{PREFIX}\.([A-Za-z0-9_-]{{16,}})\.([0-9a-f]{{64}})")


@dataclass(frozen=True)
class JoinToken:
    """What a joining agent is given."""

    secret: str
    """What is sent to the gateway."""
    fingerprint: str = ""
    """SHA-256 of the gateway's certificate in DER, 64 hex digits; empty: it is verified by the system's authorities."""

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """`sanjaya1.SECRET.FINGERPRINT`, or any other token of the gateway's, which pins no certificate.

        Raises:
            BusError: it begins like the first form and is cut short.
        """
        text = text.strip()
        found = _FORM.fullmatch(text)
        if found is not None:
            return cls(found[1], found[2])
        if text.startswith(f"{PREFIX}."):
            raise BusError("the token is damaged: expected three parts with dots between, as `sanjaya up` has shown it")
        return cls(text)

    @classmethod
    def new(cls, fingerprint: str) -> JoinToken:
        """A token with a new secret."""
        return cls(secrets.token_urlsafe(32), fingerprint)

    def __str__(self) -> str:
        return f"{PREFIX}.{self.secret}.{self.fingerprint}" if self.fingerprint else self.secret


def fingerprint_of(pem: str) -> str:
    """The fingerprint of a certificate, as tokens have it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def pinned(url: str, fingerprint: str) -> ssl.SSLContext:
    """TLS with the one gateway that has this certificate. Blocking: call it in a thread.

    The certificate is fetched and compared before anything else is sent; from then on it is the only one that
    connections accept, and each handshake proves that its private key is there.

    Raises:
        Refused: another certificate is there.
        BusUnavailable: nothing answers there.
    """
    parts = urlsplit(url)
    try:
        pem = ssl.get_server_certificate((parts.hostname or "", parts.port or 443), timeout=CONNECT_S)
    except (OSError, socket.gaierror) as error:  # an SSLError is an OSError
        raise BusUnavailable(f"no gateway answers at {url}: {error}") from error
    found = fingerprint_of(pem)
    if found != fingerprint:
        raise Refused(
            f"the certificate of {url} has the fingerprint {found}, the token expects {fingerprint}: it is another "
            "cell, a cell that was set up anew, or another program in between; the token was not sent  try: the "
            "command that `sanjaya up --host` shows now"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem)
    context.check_hostname = False  # the certificate itself is what the name would vouch for
    return context
