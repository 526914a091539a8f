"""The gateway's settings: the cell's own, and to which machines and users the door is open."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from libs.runtime.settings import Settings

DAY_S = 86_400.0


class GatewaySettings(Settings):
    """Read once at the start, from the environment."""

    listen: str = ""
    """`host:port` to listen on; empty: that of the `gateway` URL."""
    secure_listen: str = ""
    """`host:port` to listen on with TLS as well, where every request needs a token; empty: nowhere."""
    tls_certificate_file: Path | None = None
    """In PEM, of `secure_listen`."""
    tls_key_file: Path | None = None
    """The private key of the certificate, in PEM."""
    agent_tokens_file: Path | None = None
    """Tokens with which agents join (scope `agent`), in a file of the same form as `tokens_file`."""
    tokens_file: Path | None = None
    """What each user may do (`adapters/tokens.py`); none: every request may do everything, from this machine only."""
    cell_tokens_file: Path | None = None
    """Tokens of the cell's own user and agents, as `sanjaya up` makes them, besides those of `tokens_file`."""
    cell_key_file: Path | None = None
    """The secret that this gateway shares with the cell's agents (`libs/runtime/cell_key.py`); none: no files."""
    anonymous: bool = False
    """Open without tokens to other machines too. A client that reaches the port can then run programs on the nodes."""
    max_body_bytes: int = Field(default=1024 * 1024, ge=1024)
    """Largest JSON body."""
    max_code_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """Largest uploaded working directory, packed."""
    max_unpacked_code_bytes: int = Field(default=1024 * 1024 * 1024, ge=1024)
    """Largest uploaded working directory, unpacked."""
    longest_wait_s: float = Field(default=30.0, gt=0)
    """Most that a read waits for the read models (`Prefer: wait`, `at_least_offset`)."""
    commit_timeout_s: float = Field(default=30.0, gt=0)
    """A request that the log has not taken by then is answered with 503."""
    idempotency_days: float = Field(default=30.0, ge=30)
    """An Idempotency-Key is kept at least so many days after its request."""
    disk_reserve_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    """Free on the disks of the log and of uploads, or else new work is refused: this much is kept for what runs."""
    heartbeat_s: float = Field(default=15.0, gt=0)
    """A stream without events says so this often."""
    conservation_every_s: float = Field(default=5.0, gt=0)
    """How often it is checked that every job and every GPU is accounted for."""
    foresee_s: float = Field(default=0.15, gt=0)
    """CPU time after which it is not looked any further for what would start a waiting job, and when it is expected
    to: the last resort, as the number of decisions is limited anyway."""
    asyncapi_file: Path = Path(__file__).parents[2] / "schemas" / "asyncapi.yaml"
    """Served at `/asyncapi.json`, when it exists."""

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        if self.secure_listen and None in (self.tls_certificate_file, self.tls_key_file, self.agent_tokens_file):
            raise ValueError(
                "SANJAYA_SECURE_LISTEN needs SANJAYA_TLS_CERTIFICATE_FILE, SANJAYA_TLS_KEY_FILE and "
                "SANJAYA_AGENT_TOKENS_FILE as well"
            )
        return self

    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return _host_and_port(f"//{self.listen}" if self.listen else self.gateway)

    def secure_address(self) -> tuple[str, int] | None:
        """Host and port to listen on with TLS; None: nowhere."""
        return _host_and_port(f"//{self.secure_listen}") if self.secure_listen else None

    def on_loopback(self) -> bool:
        """Whether only this machine can reach the gateway."""
        host = self.address()[0]
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port if parts.port is not None else 8420
