"""The virtual clusters of a run: a table of tenants and what each is guaranteed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from libs.contracts.bad_input import BadInput
from libs.contracts.gateway import ANY_TYPE, TenantConfigured
from libs.kernel.words import counted
from libs.sim.inputs import open_input

COLUMNS = ("tenant", "servers", "guarantee", "limit", "weight", "parent")
"""`tenant` and one of `servers` (whole ones, with all their GPUs) and `guarantee` (GPUs); the others may be missing."""


def read_tenants(
    source: str | Path, *, gpus_per_server: int, total_gpus: int, requested_by: str
) -> list[TenantConfigured]:
    """Tenants from a CSV file with `COLUMNS`, `-` for standard input; each is guaranteed GPUs of any type.

    Raises:
        BadInput: the table breaks its format, or the guarantees exceed the GPUs of the cluster.
    """
    with open_input(source) as (file, name):
        rows = csv.DictReader(file)
        columns = rows.fieldnames or []
        if "tenant" not in columns or ("servers" in columns) == ("guarantee" in columns):
            raise BadInput(f"{name}, header", ",".join(columns) or "empty", "tenant and one of servers and guarantee")
        unknown = [column for column in columns if column not in COLUMNS]
        if unknown:
            raise BadInput(f"{name}, header", f"column {unknown[0]}", f"columns of {', '.join(COLUMNS)}")
        found = list(_tenants(rows, name, gpus_per_server, requested_by))
    names = [tenant.tenant for tenant in found]
    for tenant in found:
        if tenant.parent and tenant.parent not in names[: names.index(tenant.tenant)]:
            raise BadInput(f"{name}, tenant {tenant.tenant}", f"parent {tenant.parent}", "a tenant of a row above")
    together = sum(tenant.guarantees.get(ANY_TYPE, 0) for tenant in found if not tenant.parent)
    if together > total_gpus:
        there = counted(total_gpus, "GPU")
        raise BadInput(name, f"{together} GPUs are guaranteed", f"no more than the {there} of the cluster")
    return found


def _tenants(
    rows: csv.DictReader[str], name: str, gpus_per_server: int, requested_by: str
) -> Iterator[TenantConfigured]:
    seen: dict[str, None] = {}
    for row in rows:
        where = f"{name}, line {rows.line_num}"
        tenant = (row["tenant"] or "").strip()
        if not tenant or tenant in seen:
            raise BadInput(f"{where}, column tenant", tenant or "empty", "a name that no other row has")
        seen[tenant] = None
        servers, guarantee = _whole(row, "servers", where), _whole(row, "guarantee", where)
        gpus = (servers or 0) * gpus_per_server + (guarantee or 0)
        yield TenantConfigured(
            tenant=tenant,
            gpu_limit=_whole(row, "limit", where),
            requested_by=requested_by,
            weight=_weight(row, where),
            parent=(row.get("parent") or "").strip(),
            guarantees={ANY_TYPE: gpus} if gpus else {},
        )


def _whole(row: Mapping[str, str | None], column: str, where: str) -> int | None:
    text = (row.get(column) or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len("65536")):
        raise BadInput(f"{where}, column {column}", text, "a whole number, 0 or more")
    return int(text)


def _weight(row: Mapping[str, str | None], where: str) -> float:
    text = (row.get("weight") or "1").strip()
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight <= 1e6:
        raise BadInput(f"{where}, column weight", text, "a number above 0")
    return weight
