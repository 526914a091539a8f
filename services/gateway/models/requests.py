"""The other request bodies."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StrictFloat, StrictInt, model_validator

from libs.contracts.gateway import GUESTS
from libs.policies.table import POLICIES, guests_with
from services.gateway.models.job_request import MAX_GPUS, GpuType, Seconds, Strict

LEAST_LIMIT_BYTES = 1_000_000
"""A smaller limit of memory has its unit forgotten."""

Note = Annotated[str, Field(max_length=1000)]


class CancelRequest(Strict):
    """How a job is to be ended."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"grace_s": 30, "note": "wrong data"}]})

    grace_s: Annotated[
        float,
        Field(ge=0, le=3600, allow_inf_nan=False, description="Time between the polite and the forceful signal."),
    ] = 10.0
    note: Note = ""


Priority = Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)]


class GroupPatch(Strict):
    """What may change of all jobs of an array or a DAG."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"priority": 10}]})

    priority: Priority


class JobPatch(Strict):
    """What may change after submission; what is left out stays."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"priority": 10}, {"max_gpus": 2}]})

    priority: Priority | None = None
    max_gpus: Annotated[StrictInt, Field(ge=1, le=MAX_GPUS)] | None = Field(
        None, description="Of an elastic job: most GPUs, from what it asks for to the end of its range."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.priority is None and self.max_gpus is None:
            raise ValueError("expected priority, max_gpus or both")
        return self


class JobLimits(Strict):
    """Bounds for what a job may have of each of its GPUs; null, or left out: there is none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"memory_limit_bytes": 2_000_000_000, "compute_share_ratio": 0.3}]},
    )

    memory_limit_bytes: Annotated[StrictInt, Field(ge=LEAST_LIMIT_BYTES)] | None = Field(
        None, description="Of the GPU's memory, for each of the job's processes; no more than the largest GPU has."
    )
    compute_share_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        None, description="Of the GPU's time outside of its owner's gaps."
    )


class CodeChange(Strict):
    """The upload that a job is to start with."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"code_id": "c-" + "a" * 32}]})

    code_id: Annotated[str, Field(pattern=r"^c-[a-z2-7]{32}$")]


class DrainRequest(Strict):
    """Why a node is drained; required: users with waiting jobs will ask."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "ECC errors on GPU 2"}]})

    reason: Annotated[str, Field(min_length=1, max_length=1000)]
    now: Annotated[bool, Field(description="Jobs that would start again from zero leave at once, too.")] = False


class ClockRepairRequest(Strict):
    """Why the services go back to the log's clock."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "node n7 was in 2099"}]})

    reason: Annotated[str, Field(min_length=1, max_length=1000)]


class ReleaseRequest(Strict):
    """An input that is to leave quarantine."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"input": "/data/train.csv"}]})

    input: Annotated[str, Field(min_length=1, max_length=4096, description="As jobs name it in their `data`.")]


Response = Literal["tell", "stop", "requeue"]
OnAlarm = Annotated[Response | None, Field(description="What is done about such a job; null: as it is.")]


PerType = dict[GpuType, Annotated[StrictInt, Field(ge=0, le=MAX_GPUS)]]


class TenantRequest(Strict):
    """A tenant's share and limits, and what is done about its jobs that do not get on."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"gpu_limit": 8, "weight": 1.0},
                {"gpu_limit": None, "parent": "research", "guarantees": {"v100": 32}, "limits": {"v100": 96}},
            ]
        },
    )

    gpu_limit: Annotated[StrictInt, Field(ge=0, le=MAX_GPUS)] | None = Field(
        ..., description="Most GPUs of the tenant's jobs together; null: no limit."
    )
    weight: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    parent: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,62})?$")] = Field(
        "", description="The tenant that this one's share is a part of; empty: none."
    )
    guarantees: PerType = Field(
        {}, max_length=32, description="GPUs per type, or `any`, that are its own when it needs them."
    )
    limits: PerType = Field({}, max_length=32, description="Most GPUs of a type together.")
    per_user: PerType = Field({}, max_length=32, description="Most GPUs of a type, or `any`, for each user.")
    lend: bool = Field(True, description="Others may use what it does not use of its guarantee.")
    borrow: bool = Field(True, description="It may use more than its guarantee.")
    on_stall: OnAlarm = None
    on_divergence: OnAlarm = None
    on_idle: OnAlarm = None


Price = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
ModelName = Annotated[str, Field(min_length=1, max_length=128)]
BatchSize = Annotated[StrictInt, Field(ge=1, le=2**31)]
Count = Annotated[StrictInt, Field(ge=1, le=MAX_GPUS)]


class PolicyRequest(Strict):
    """The placement policy from now on. The options matter to allocation policies alone."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"policy": "strict_fifo", "note": "RFC 12"}]}
    )

    policy: Literal[tuple(POLICIES)]  # type: ignore[valid-type]
    note: Note = ""
    space_sharing: bool = Field(False, description="Two jobs may share GPUs.")
    heterogeneity_aware: bool = Field(True, description="False: decide as if all GPU types were equally fast.")
    water_filling: bool = Field(False, description="Until every job is bottlenecked (`max_min_fairness`).")
    cost_per_hour: dict[GpuType, Price] = Field({}, max_length=32, description="Of one GPU of each type.")
    guests: Literal[GUESTS] | None = Field(  # type: ignore[valid-type]
        None, description="Whether opportunistic jobs run beside those that it places; null: as the policy is made."
    )

    @model_validator(mode="after")
    def _guests_are_said(self) -> Self:
        self.guests = guests_with(self.policy, self.guests, space_sharing=self.space_sharing)
        return self


class Isolated(Strict):
    """How fast a configuration trains alone."""

    model: ModelName
    batch_size: BatchSize | None = None
    gpus: Count
    steps_per_s: dict[GpuType, Rate] = Field(..., max_length=32)
    spread_steps_per_s: dict[GpuType, Rate] = Field(
        {}, max_length=32, description="With the GPUs on more servers than are needed; missing or 0: not known."
    )


class Colocated(Strict):
    """How fast two configurations train when they share GPUs; 0: they cannot."""

    a_model: ModelName
    a_batch_size: BatchSize | None = None
    b_model: ModelName
    b_batch_size: BatchSize | None = None
    gpus: Count
    gpu_type: GpuType
    a_steps_per_s: Rate
    b_steps_per_s: Rate


class ThroughputsRequest(Strict):
    """Rates that policies may use. Adds to what was provided before; equal rows are replaced."""

    isolated: list[Isolated] = Field([], max_length=2000)
    colocated: list[Colocated] = Field([], max_length=4000)


class SettingRequest(Strict):
    """A new value for a setting."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"value": 30}]})

    value: Annotated[StrictInt | StrictFloat, Field(ge=0, le=1e9, allow_inf_nan=False)]


__all__ = [
    "CancelRequest",
    "ClockRepairRequest",
    "DrainRequest",
    "GroupPatch",
    "JobPatch",
    "PolicyRequest",
    "Seconds",
    "SettingRequest",
    "TenantRequest",
    "ThroughputsRequest",
]
