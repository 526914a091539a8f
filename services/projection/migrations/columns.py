"""The kinds of columns that the revisions make."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Text
from sqlalchemy.dialects import postgresql


def text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=nullable)


def integer(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=nullable)


def real(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def boolean(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def json(name: str) -> sa.Column[Any]:
    kind = sa.JSON().with_variant(postgresql.JSONB(astext_type=Text()), "postgresql")
    return sa.Column(name, kind, nullable=False)
