"""What a user may submit, and the specification that follows."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec.structs import FieldInfo
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from libs.contracts.bad_input import BadInput
from libs.contracts.features import DATA_NAME, data_variable
from libs.contracts.job_fields import JOB_FIELDS, type_of
from libs.contracts.jobs import JobSpec
from libs.datasets.schema import schema_of
from libs.kernel.launchers import PER_GPU, PER_NODE, conflict, starts_ranks
from libs.node.loss_lines import loss_line
from services.gateway.models import forms

MAX_GPUS = 65_536
_YEARS_S = 1e9

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
TenantName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
GpuType = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$"),
    BeforeValidator(lambda v: v.lower() if isinstance(v, str) else v, json_schema_input_type=Name),
]
DataName = Annotated[str, Field(pattern=DATA_NAME)]
GpusText = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62}:)?[1-9][0-9]{0,3}$")]
ElasticText = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}:[1-9][0-9]{0,3}$")]
CommandText = Annotated[str, Field(pattern=r"\S", max_length=131_072)]
SecondsText = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}(:[0-5][0-9]){1,2}$|^[1-9][0-9]{0,5}[smhd]$")]
SizeText = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}([KMGT]i?B|[KMGT])$")]
Word = Annotated[StrictStr, Field(max_length=131_072)]
Seconds = Annotated[
    StrictFloat,
    Field(gt=0, le=_YEARS_S, allow_inf_nan=False),
    BeforeValidator(
        forms.seconds,
        json_schema_input_type=Annotated[float, Field(gt=0, le=_YEARS_S, allow_inf_nan=False)] | SecondsText,
    ),
]


class Strict(BaseModel):
    """Unknown members are refused: a misspelt field would otherwise be ignored in silence."""

    model_config = ConfigDict(extra="forbid", str_max_length=131_072)

    def canonical(self) -> bytes:
        """The same bytes for the same request, in whatever order and form it was written."""
        return msgspec.json.encode(self.model_dump(mode="json", by_alias=True, exclude_unset=True), order="sorted")


class Gpus(Strict):
    """How many GPUs, and of which types."""

    count: Annotated[StrictInt, Field(ge=1, le=MAX_GPUS)] = 1
    types: Annotated[list[GpuType], Field(max_length=32)] = []
    excluded_types: Annotated[list[GpuType], Field(max_length=32)] = []
    max_nodes: Annotated[StrictInt, Field(ge=1, le=MAX_GPUS)] | None = None

    @model_validator(mode="after")
    def _some_type_is_left(self) -> Self:
        if self.types and set(self.types) <= set(self.excluded_types):
            raise ValueError("every type that is asked for is excluded as well")
        return self


class Elastic(Strict):
    """World sizes between which the job may be grown and shrunk."""

    min_gpus: Annotated[StrictInt, Field(ge=1, le=MAX_GPUS)]
    max_gpus: Annotated[StrictInt, Field(ge=1, le=MAX_GPUS)]


class Simulated(Strict):
    """For simulated nodes: what the job would do."""

    model: Annotated[str, Field(max_length=128)] = ""
    batch_size: Annotated[StrictInt, Field(ge=1, le=2**31)] | None = None
    total_steps: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)] | None = None
    duration_s: Seconds | None = None


EXAMPLE: dict[str, Any] = {
    "name": "resnet",
    "command": ["python", "train.py", "--epochs", "3"],
    "gpus": "v100:2",
    "tenant": "vision",
    "priority": 5,
    "max_retries": 2,
    "env": {"OMP_NUM_THREADS": "2"},
    "time_limit_s": "4:00:00",
    "labels": {"project": "imagenet"},
}


_TYPES: dict[type, Any] = {
    int: StrictInt,
    float: Annotated[float, Field(allow_inf_nan=False)],
    bool: StrictBool,
    str: str,
}


def _member(field: FieldInfo) -> tuple[Any, Any]:
    """Type and default of the member of a request that gives a field of `JobSpec` as it is.

    Of a field with another type than these the members have forms of their own: `JobRequest` says which.
    """
    row = JOB_FIELDS[field.name]
    kind, optional = type_of(field)
    if kind not in _TYPES or row.has_forms or field.required:
        return Any, ...
    limited: Any = Annotated[_TYPES[kind], Field(**row.limits)]
    return limited | None if optional else limited, Field(field.default, description=row.says or None)


_SPEC = {field.name: field for field in msgspec.structs.fields(JobSpec)}
_MEMBERS: dict[str, Any] = {name: _member(_SPEC[name]) for name in JOB_FIELDS}
_Plain = create_model("_Plain", __base__=Strict, **_MEMBERS)
"""The members that a row makes. It has the others as well, because members are checked in its order."""


class JobRequest(_Plain):  # type: ignore[valid-type,misc]  # mypy does not follow models that are made
    """A job to be run. Only `command` is required."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE]})

    command: Annotated[
        list[Word],
        BeforeValidator(forms.command, json_schema_input_type=list[Word] | CommandText),
        Field(min_length=1, max_length=4096, description="A list is run as it is; a string is run by `/bin/sh -c`."),
    ]
    name: Name | None = Field(None, description="Default: the name of the script.")
    gpus: Annotated[
        Gpus,
        BeforeValidator(forms.gpus, json_schema_input_type=Annotated[int, Field(ge=1, le=MAX_GPUS)] | GpusText | Gpus),
        Field(description='A number, `"v100:2"`, or an object.'),
    ] = Gpus()
    tenant: TenantName = "default"
    user: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$")] | None = Field(
        None, description="Default: the name that the token stands for."
    )
    job_class: Literal["automatic", "guaranteed", "opportunistic"] = Field(
        "automatic",
        alias="class",
        description="`guaranteed` uses its tenant's quota and waits for it; `opportunistic` uses none, and runs on "
        "what guaranteed jobs leave; `automatic` is guaranteed, or opportunistic where quota would be long in coming.",
    )
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,255}$")], Word] = Field({}, max_length=1000)
    elastic: Annotated[Elastic, BeforeValidator(forms.elastic, json_schema_input_type=ElasticText | Elastic)] | None = (
        Field(None, description='`"2:8"` or an object.')
    )
    deadline_s: Seconds | None = Field(None, description="After submission.")
    time_limit_s: Seconds | None = Field(None, description="Of one attempt.")
    labels: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")], Annotated[str, Field(max_length=256)]
    ] = Field({}, max_length=64)
    launcher: (
        Annotated[
            Literal["ranks", "command"],
            BeforeValidator(forms.launcher, json_schema_input_type=Literal["per-gpu", "per-node", "ranks", "command"]),
        ]
        | None
    ) = Field(
        None,
        validate_default=True,
        description="`per-gpu` (`ranks`): a process per GPU; `per-node` (`command`): a process per node, which is the "
        "default for commands that start the ranks themselves, such as `torchrun`.",
    )
    simulated: Simulated | None = None
    throughputs: dict[GpuType, Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]] = Field(
        {}, max_length=32, description="Steps per second of the whole job on each GPU type, where they are known."
    )

    memory_bytes: (
        Annotated[
            StrictInt,
            Field(ge=2**20, le=2**60),
            BeforeValidator(forms.size, json_schema_input_type=Annotated[int, Field(ge=2**20, le=2**60)] | SizeText),
        ]
        | None
    ) = Field(
        None,
        description='Memory of the host for each GPU, promised to no other job, and a limit: bytes, `"32GB"` (10^9) or '
        '`"32GiB"`, `"32G"` (2^30). Default: neither promised nor limited.',
    )

    mounts: Annotated[
        dict[DataName, Annotated[str, Field(max_length=4096, pattern=r"^(/[^:,]*)?$")]],
        BeforeValidator(forms.mounts, json_schema_input_type=str | list[str] | dict[str, str]),
        Field(
            max_length=32,
            description="{name of data that nodes have: its path in the image, or an empty text}; also `name`, "
            "`name:path` and lists of these. Where it is stands in `SANJAYA_DATA_<NAME>`.",
        ),
    ] = {}

    data: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        [], max_length=256, description="Files of the nodes with its data: paths and patterns, as `/data/*.parquet`."
    )

    @field_validator("data_schema")
    @classmethod
    def _a_schema(cls, value: str) -> str:
        if value:
            try:
                schema_of(value, "data_schema")
            except BadInput as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("python", "venv")
    @classmethod
    def _a_path_of_the_nodes(cls, value: str) -> str:
        if value and not value.startswith("/"):
            raise ValueError(f"{value!r}: expected an absolute path on the nodes, such as /opt/torch/bin/python")
        return value

    @field_validator("venv", "conda", "image")
    @classmethod
    def _one_environment(cls, value: str, info: ValidationInfo) -> str:
        """The fields before this one are known: each is compared with those."""
        others = ("python", "venv", "conda", *(("setup",) if info.field_name == "image" else ()))
        if value and (given := [name for name in others if info.data.get(name)]):
            raise ValueError(f"{info.field_name} and {given[0]} contradict each other; expected one of them")
        return value

    @field_validator("mounts")
    @classmethod
    def _a_path_is_in_an_image(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        named = next((name for name, path in value.items() if path), None)
        if named is not None and not info.data.get("image"):
            raise ValueError(
                f"{named}:{value[named]}: without an image data stays where the node has it; "
                f"expected {named} alone, which is found by {data_variable(named)}"
            )
        return value

    @field_validator("loss_line")
    @classmethod
    def _a_rule_names_both_numbers(cls, value: str) -> str:
        if value:
            loss_line(value)
        return value

    @field_validator("elastic")
    @classmethod
    def _elastic_holds_gpus(cls, value: Elastic | None, info: ValidationInfo) -> Elastic | None:
        wanted = info.data.get("gpus")
        if value and wanted and not value.min_gpus <= wanted.count <= value.max_gpus:
            raise ValueError(f"{value.min_gpus}:{value.max_gpus} does not hold the {wanted.count} GPUs asked for")
        return value

    @field_validator("launcher")
    @classmethod
    def _the_numbers_agree(cls, value: str | None, info: ValidationInfo) -> str | None:
        command, wanted = info.data.get("command"), info.data.get("gpus")
        if value != PER_GPU and command and wanted:
            contradiction = conflict(command, wanted.count, wanted.max_nodes)
            if contradiction is not None:
                raise ValueError(contradiction)
        return value

    def spec(self, user: str) -> JobSpec:
        """The specification that goes on the log.

        Args:
            user: the sender, for a request that names no user.
        """
        by_command = PER_NODE if starts_ranks(self.command) is not None else PER_GPU
        own = {
            "name": self.name or forms.job_name(self.command),
            "user": self.user or user,
            "launcher": self.launcher or by_command,
        }
        return msgspec.convert(self.model_dump(by_alias=True) | own, JobSpec)
