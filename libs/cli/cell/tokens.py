"""What the gateway of a cell is told of the tokens that `up` has made: names, rights, and hashes of the secrets."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import yaml

from libs.cli.private import write_private


def entry(name: str, secret: str, scope: str, **more: Any) -> dict[str, Any]:
    """One token, as the gateway's file of tokens has it (`services/gateway/README.md`).

    Args:
        more: further fields, such as `nodes`.
    """
    return {"name": name, "sha256": hashlib.sha256(secret.encode()).hexdigest(), "scopes": [scope], **more}


def write_tokens(path: Path, *entries: dict[str, Any]) -> None:
    """Replace the file."""
    write_private(path, yaml.safe_dump({"tokens": list(entries)}, sort_keys=False))
