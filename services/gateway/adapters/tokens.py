"""What each user may do: bearer tokens from a file.

The file is YAML (or JSON):

    tokens:
      - name: alice
        sha256: 5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
        scopes: [read, submit]
      - name: ci
        token: a-token-in-clear-where-it-must-be
        scopes: [read, submit, operate]
      - name: nlp-bot
        sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
        scopes: [read, submit]
        tenants: [nlp]
      - name: second-machines
        sha256: 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
        scopes: [agent]
        nodes: ["gpu-*", "!gpu-7"]

Scopes do not include each other, except that `admin` includes all. `tenants` limits a token to the jobs of some
tenants: their output and files are read with it, and jobs submitted and changed. Without it a token is for all
tenants, and so is one with the scope `operate` or `admin`. `nodes` has the patterns of node ids that agents may join
with the token; those behind an exclamation mark may not.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from libs.contracts.bad_input import BadInput
from libs.kernel.yaml_text import read_yaml

EXCEPT = "!"
"""Before a pattern of nodes that a token is not for."""
_ID_DIGITS = 16


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    """See everything in the cell; output and files of jobs of the token's tenants."""
    SUBMIT = "submit"
    """Submit jobs and code; cancel, pause, resume and change jobs of the token's tenants."""
    OPERATE = "operate"
    """Drain nodes."""
    AGENT = "agent"
    """Join nodes: read the orders of these nodes and say the facts of these nodes; fetch code."""
    ADMIN = "admin"
    """Tenants, policy and settings, and everything else."""


@dataclass(frozen=True)
class Principal:
    """The sender of a request."""

    name: str
    scopes: frozenset[Scope]
    authenticated: bool = True
    tenants: frozenset[str] | None = None
    """The tenants with jobs that the token is for; None: all."""
    nodes: tuple[str, ...] = ()
    """Patterns of the nodes that the token is for."""
    token_id: str = ""
    """Names the token, and gives nothing of it away; another token of the same name has another id."""

    def may(self, scope: Scope) -> bool:
        """Whether the request is covered."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def is_for(self, tenant: str) -> bool:
        """Whether the token is for jobs of this tenant."""
        cell_wide = self.may(Scope.OPERATE) or self.tenants is None
        return cell_wide or tenant in (self.tenants or ())

    def is_for_node(self, node_id: str) -> bool:
        """Whether an agent may join this node with the token."""
        if Scope.ADMIN in self.scopes:
            return True
        allowed = any(fnmatchcase(node_id, pattern) for pattern in self.nodes if not pattern.startswith(EXCEPT))
        barred = any(fnmatchcase(node_id, pattern[1:]) for pattern in self.nodes if pattern.startswith(EXCEPT))
        return Scope.AGENT in self.scopes and allowed and not barred


ANONYMOUS = Principal("anonymous", frozenset({Scope.ADMIN}), authenticated=False)
"""The sender of every request, where no tokens are configured."""


class TokensUnreadable(Exception):
    """The tokens file is missing or wrong; the message says where."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    token: Annotated[str, Field(min_length=16)] | None = None
    scopes: Annotated[list[Scope], Field(min_length=1)]
    tenants: Annotated[list[str], Field(min_length=1)] | None = None
    nodes: Annotated[list[str], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.sha256 is None) == (self.token is None):
            raise ValueError("expected either sha256 or token")
        if (Scope.AGENT in self.scopes) != (self.nodes is not None):
            raise ValueError("expected nodes with the scope agent, and with no other scope")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: Annotated[list[_Entry], Field(min_length=1)]


class Tokens:
    """The tokens of a file, by the hash of their secret."""

    def __init__(self, principals: dict[str, Principal]) -> None:
        self._principals = principals

    @classmethod
    def read(cls, *paths: Path) -> Tokens:
        """Read the tokens of all these files.

        Raises:
            TokensUnreadable: it cannot be read, or an entry is wrong.
        """
        digests = {entry.sha256 or _hash(entry.token or ""): entry for path in paths for entry in _entries(path)}
        return cls(
            {
                digest: Principal(
                    entry.name,
                    frozenset(entry.scopes),
                    tenants=None if entry.tenants is None else frozenset(entry.tenants),
                    nodes=tuple(entry.nodes or ()),
                    token_id=digest[:_ID_DIGITS],
                )
                for digest, entry in digests.items()
            }
        )

    def find(self, token: str) -> Principal | None:
        """The owner of this token. Takes the same time for every wrong token."""
        wanted = _hash(token)
        found = None
        for known, principal in self._principals.items():
            if hmac.compare_digest(known, wanted):
                found = principal
        return found

    def by_id(self, token_id: str) -> Principal | None:
        """The owner of the token with this id, as long as the token is known."""
        return next((owner for owner in self._principals.values() if owner.token_id == token_id), None)


def _entries(path: Path) -> list[_Entry]:
    try:
        return _File.model_validate(read_yaml(path.read_text(), str(path), yaml.safe_load)).tokens
    except (OSError, UnicodeDecodeError) as error:
        raise TokensUnreadable(f"{path}: {error}") from None
    except BadInput as error:
        raise TokensUnreadable(str(error)) from None
    except ValidationError as error:
        wrong = error.errors(include_input=False)[0]
        place = "/".join(str(part) for part in wrong["loc"])
        raise TokensUnreadable(f"{path}: {place}: {wrong['msg']}") from None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
