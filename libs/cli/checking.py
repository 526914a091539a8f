"""What is better said before a job is submitted: that it could never run, and that its tenant is probably mistyped."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from libs.cli.context import USAGE, fail
from libs.client import ApiError, Client

LIKE = 0.75
"""Least similarity, of 1, of two names of which one is taken for the other mistyped."""


def check(cell: Client, request: dict[str, Any], idempotency_key: str | None) -> None:
    """End with a message where the job would be rejected, or would make a tenant by a slip of the finger.

    A request with a key is sent as it is: it may have been accepted before, when the cluster was another. So is every
    request while the read models are away, which know all this: the cell accepts jobs without them.
    """
    if idempotency_key is not None:
        return
    try:
        found = cell.dry_run(request)
        tenants = [str(tenant["name"]) for tenant in cell.tenants()]
    except ApiError as error:
        if error.status < 500:
            raise
        return
    tenant = str(found["spec"]["tenant"])
    if tenant not in tenants and (near := mistyped(tenant, tenants)):
        hint = f"--tenant {near}, or `sanjaya tenant set {tenant} --quota none` if it is a new one"
        fail(f'there is no tenant "{tenant}" (did you mean "{near}"?)', USAGE, hint)
    if found["verdict"] == "rejected":
        fail(f"this job could never run: {found['message']} ({found['reason']})", USAGE, "sanjaya gpus")


def mistyped(name: str, known: list[str]) -> str | None:
    """The known name that was probably meant; names that differ in digits alone are different names."""
    others = [other for other in known if _without_digits(name) != _without_digits(other)]
    return next(iter(get_close_matches(name, others, n=1, cutoff=LIKE)), None)


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())
