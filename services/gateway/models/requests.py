"""The other request bodies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictFloat, StrictInt

from libs.contracts.gateway import POLICY_NAMES
from services.gateway.models.job_request import MAX_GPUS, Seconds, Strict

Note = Annotated[str, Field(max_length=1000)]


class CancelRequest(Strict):
    """How a job is to be ended."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"grace_s": 30, "note": "wrong data"}]})

    grace_s: Annotated[
        float,
        Field(ge=0, le=3600, allow_inf_nan=False, description="Time between the polite and the forceful signal."),
    ] = 10.0
    note: Note = ""


class JobPatch(Strict):
    """What may change after submission."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"priority": 10}]})

    priority: Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)]


class DrainRequest(Strict):
    """Why a node is drained; required, because somebody will ask."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "ECC errors on GPU 2"}]})

    reason: Annotated[str, Field(min_length=1, max_length=1000)]


class TenantRequest(Strict):
    """A tenant's limits."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"gpu_limit": 8, "weight": 1.0}]})

    gpu_limit: Annotated[StrictInt, Field(ge=0, le=MAX_GPUS)] | None = Field(
        ..., description="Most GPUs of the tenant's jobs together; null: no limit."
    )
    weight: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0


class PolicyRequest(Strict):
    """The placement policy from now on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"policy": "fifo", "note": "RFC 12"}]})

    policy: Literal[POLICY_NAMES]  # type: ignore[valid-type]
    note: Note = ""


class SettingRequest(Strict):
    """A new value for a setting."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"value": 30}]})

    value: Annotated[StrictInt | StrictFloat, Field(ge=0, le=1e9, allow_inf_nan=False)]


__all__ = [
    "CancelRequest",
    "DrainRequest",
    "JobPatch",
    "PolicyRequest",
    "Seconds",
    "SettingRequest",
    "TenantRequest",
]
