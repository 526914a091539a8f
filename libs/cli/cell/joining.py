"""What lets agents of other machines join a cell on this one: an address, a certificate, a token, and the command."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import socket
import subprocess
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil

from libs.bus.http.token import JoinToken, fingerprint_of
from libs.bus.port import BusError
from libs.cli.cell.errors import CellError
from libs.cli.cell.tokens import entry, write_tokens
from libs.cli.private import write_private

VALID_DAYS = 3650
"""Of the certificate: the tokens that pin it are good for as long."""


@dataclass(frozen=True)
class Joining:
    """What `sanjaya up --host` makes in the state directory.

    The certificate is made by the `openssl` program, which every machine with Python's ssl module has or can have; a
    package for the one call would be a dependency of everything.
    """

    state_dir: Path
    cell: str
    host: str
    """A name or an address of this machine."""
    port: int
    own_nodes: tuple[str, ...]
    """Nodes of the cell's own agents, which no other machine may take over."""

    @property
    def certificate(self) -> Path:
        """In PEM."""
        return self.state_dir / "tls" / "certificate.pem"

    @property
    def key(self) -> Path:
        """Of the certificate."""
        return self.state_dir / "tls" / "key.pem"

    @property
    def token_file(self) -> Path:
        """Holds the token, for its user."""
        return self.state_dir / "agent.token"

    @property
    def tokens_file(self) -> Path:
        """Holds what the gateway knows of it."""
        return self.state_dir / "agent_tokens.yaml"

    @property
    def url(self) -> str:
        """Where agents join."""
        return f"https://{_bracketed(self.host)}:{self.port}"

    def address(self) -> str:
        """The address of this machine to listen at.

        Raises:
            CellError: the host is no address of this machine, or is one that other machines cannot use.
        """
        try:
            family, _, _, _, place = socket.getaddrinfo(self.host, 0, type=socket.SOCK_STREAM)[0]
        except socket.gaierror as error:
            raise CellError(f"--host {self.host}: {error.strerror}; expected an address of this machine") from None
        address = str(place[0])
        if ip_address(address).is_unspecified or address in ("127.0.0.1", "::1"):
            expected = "expected the address by which other machines reach this one"
            raise CellError(f"--host {self.host}: {expected}  try: {_of_this_machine()}")
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise CellError(f"--host {self.host}: {error.strerror}") from None
                why = f"--host {self.host}: {address} is no address of this machine"
                raise CellError(f"{why}; expected one of: {_of_this_machine()}") from None
        return address

    def prepare(self) -> JoinToken:
        """Make what is not there yet. A token stays good over restarts, as long as the certificate does.

        Raises:
            CellError: the certificate cannot be made.
        """
        if not (self.certificate.exists() and self.key.exists()):
            self._make_certificate()
        fingerprint = fingerprint_of(self.certificate.read_text())
        token = self._known_token()
        if token is None or token.fingerprint != fingerprint:
            token = JoinToken.new(fingerprint)
            write_private(self.token_file, f"{token}\n")
        others = ["*", *(f"!{node_id}" for node_id in self.own_nodes)]
        write_tokens(self.tokens_file, entry("joining-agents", token.secret, "agent", nodes=others))
        return token

    def _known_token(self) -> JoinToken | None:
        try:
            return JoinToken.parse(self.token_file.read_text())
        except (FileNotFoundError, BusError):
            return None

    def _make_certificate(self) -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            raise CellError(
                "--host needs the program openssl to make a certificate, and it is not on PATH  "
                f"try: apt-get install openssl, or put a certificate and its key at {self.certificate} and {self.key}"
            )
        folder = self.certificate.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        address = self.address()
        names = f"IP:{address}" + ("" if address == self.host else f",DNS:{self.host}")
        command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", str(VALID_DAYS), "-subj", f"/CN=Sanjaya cell {self.cell}"]
        command += [
            "-addext",
            f"subjectAltName={names}",
            "-keyout",
            f"{self.key}.new",
            "-out",
            f"{self.certificate}.new",
        ]
        # openssl makes the key readable by its owner alone
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise CellError(f"openssl cannot make a certificate: {made.stderr.strip()[-300:]}")
        os.replace(f"{self.key}.new", self.key)
        os.replace(f"{self.certificate}.new", self.certificate)

    def settings(self) -> dict[str, str]:
        """The gateway's environment variables."""
        return {
            "SANJAYA_SECURE_LISTEN": f"{_bracketed(self.address())}:{self.port}",
            "SANJAYA_TLS_CERTIFICATE_FILE": str(self.certificate),
            "SANJAYA_TLS_KEY_FILE": str(self.key),
            "SANJAYA_AGENT_TOKENS_FILE": str(self.tokens_file),
        }

    def command(self) -> str:
        """What joins another machine's GPUs to the cell, once `prepare` was called."""
        words = ["sanjaya", "agent", "--join", self.url, "--token", self.token_file.read_text().strip()]
        return shlex.join(words if self.cell == "local" else [*words, "--cell", self.cell])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _of_this_machine() -> str:
    """Its addresses, as far as other machines may use them."""
    known = [
        each.address for found in psutil.net_if_addrs().values() for each in found if each.family == socket.AF_INET
    ]
    return ", ".join(sorted(address for address in known if not address.startswith("127."))) or "none is known"
