"""Uploaded working directories: fetched from the gateway once, checked, and unpacked per attempt."""

from __future__ import annotations

import base64
import hashlib
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_S = 60.0


class CodeUnavailable(Exception):
    """The code cannot be had; the message says from where and why."""


def unpack(code_id: str, gateway: str, cache: Path, target: Path) -> None:
    """Put the contents of an uploaded directory into `target`. Blocking: call it in a thread.

    Raises:
        CodeUnavailable: the gateway does not have it, or what it sent is not what the id says.
    """
    archive = cache / f"{code_id}.tar.gz"
    if not archive.exists():
        _fetch(code_id, gateway, archive)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")  # refuses absolute paths, links outside, devices
    except (tarfile.TarError, OSError) as error:
        raise CodeUnavailable(f"code {code_id} cannot be unpacked: {error}") from error


def code_id_of(content: bytes) -> str:
    """The id of an archive: `c-` and 160 bits of its SHA-256 in lower-case base 32."""
    return "c-" + base64.b32encode(hashlib.sha256(content).digest()[:20]).decode().lower()


def _fetch(code_id: str, gateway: str, archive: Path) -> None:
    url = f"{gateway}/v1/code/{code_id}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            content = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise CodeUnavailable(f"code {code_id} cannot be fetched from {url}: {error}") from error
    if code_id_of(content) != code_id:
        raise CodeUnavailable(f"{url} sent something else than code {code_id}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    temporary = archive.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.rename(archive)
