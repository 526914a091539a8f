"""Arrays, DAGs and dependencies, as a user may submit them."""

from __future__ import annotations

import graphlib
from collections import Counter
from typing import Annotated, Self

from pydantic import BeforeValidator, ConfigDict, Field, StrictInt, field_validator, model_validator

from libs.contracts.groups import Condition
from services.gateway.models import forms
from services.gateway.models.job_request import EXAMPLE, JobRequest, Name, Strict

MOST_JOBS = forms.MOST_INDICES
"""Of one array."""
MOST_OF_A_DAG = 1000
"""Jobs: all of them stand in one record."""
MOST_DEPENDENCIES = 1000
"""Of one job."""
MOST_WAITS = 100_000
"""Jobs of an array, times what each waits for: admission keeps every pair."""
MOST_ARRAY_BYTES = 64 * 1024 * 1024
"""Of the jobs of an array, as JSON."""
LARGEST_INDEX = 999_999_999

Reference = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}(\[[0-9]{1,9}\])?$")]
ArrayText = Annotated[str, Field(pattern=r"^[0-9:,-]+(%[1-9][0-9]*)?$", max_length=65_536)]
AfterText = Annotated[str, Field(max_length=65_536)]


class Array(Strict):
    """A job per index."""

    indices: Annotated[
        list[Annotated[StrictInt, Field(ge=0, le=LARGEST_INDEX)]], Field(min_length=1, max_length=MOST_JOBS)
    ]
    at_once: Annotated[StrictInt, Field(ge=1, le=MOST_JOBS)] | None = Field(
        None, description="Most jobs that are let through together; null: all."
    )

    @field_validator("indices")
    @classmethod
    def _each_once(cls, indices: list[int]) -> list[int]:
        if len(set(indices)) != len(indices):
            raise ValueError("an index is given twice")
        return sorted(indices)


class After(Strict):
    """One thing that has to end before."""

    on: Reference
    condition: Condition = Condition.OK


AfterList = Annotated[
    list[After],
    BeforeValidator(forms.after, json_schema_input_type=AfterText | list[AfterText | After]),
    Field(
        max_length=MOST_DEPENDENCIES,
        description="What has to end before: jobs, arrays, DAGs by id or name, each as `JOB`, `JOB:any` or `JOB:fail` "
        "(`ok`, the default: it must have succeeded), separated by commas, or as objects.",
    ),
]


class SubmitRequest(JobRequest):
    """A job, or an array of jobs, to be run. Only `command` is required."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [EXAMPLE, EXAMPLE | {"array": "0-99%4", "after": "prepare"}]}
    )

    array: Annotated[Array, BeforeValidator(forms.array, json_schema_input_type=ArrayText | Array)] | None = Field(
        None, description='A job per index: `"0-99"`, `"1,3,7"`, `"0-99:10"`; `"0-99%4"`: four at once. Or an object.'
    )
    after: AfterList = []

    @model_validator(mode="after")
    def _jobs_fit_on_the_log(self) -> Self:
        """The jobs are made after this check, in a service that has to get them onto the log."""
        jobs = len(self.array.indices) if self.array is not None else 1
        waits, size = len(self.after), len(self.canonical()) if jobs > 1 else 0
        if jobs * waits > MOST_WAITS:
            raise ValueError(
                f"{jobs} jobs that wait for {waits} each are too many: let them wait for one array instead"
            )
        if jobs * size > MOST_ARRAY_BYTES:
            raise ValueError(f"{jobs} jobs of {size} bytes are over {MOST_ARRAY_BYTES} bytes together")
        return self


class DagJob(JobRequest):
    """One job of a DAG."""

    name: Name
    after: AfterList = []


class DagRequest(Strict):
    """Jobs with dependencies between them, accepted or refused as a whole."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "pipeline",
                    "jobs": [
                        {"name": "prepare", "command": "python prepare.py"},
                        {"name": "train", "command": "python train.py", "gpus": 2, "after": "prepare"},
                        {"name": "clean", "command": "rm -r /scratch/x", "after": ["train:any"]},
                    ],
                }
            ]
        },
    )

    name: Name = "dag"
    jobs: Annotated[
        list[DagJob],
        Field(
            min_length=1,
            max_length=MOST_OF_A_DAG,
            description="`after` means jobs of the DAG by name before any other.",
        ),
    ]

    @field_validator("jobs")
    @classmethod
    def _is_a_dag(cls, jobs: list[DagJob]) -> list[DagJob]:
        twice, times = Counter(job.name for job in jobs).most_common(1)[0]
        if times > 1:
            raise ValueError(f"two jobs have the name {twice}; within a DAG each has its own")
        if len(tenants := sorted({job.tenant for job in jobs})) > 1:
            raise ValueError(f"the jobs are of the tenants {', '.join(tenants)}; a DAG belongs to one")
        try:
            _order(jobs)
        except graphlib.CycleError as error:
            raise ValueError(f"the jobs wait for each other in a circle: {' -> '.join(error.args[1])}") from None
        return jobs

    def in_order(self) -> list[tuple[int, DagJob]]:
        """Each job behind those that it waits for, with its place in the request."""
        places = {job.name: (place, job) for place, job in enumerate(self.jobs)}
        return [places[name] for name in _order(self.jobs)]


def _order(jobs: list[DagJob]) -> list[str]:
    """The names, each behind those that it waits for; raises CycleError where there is no such order."""
    named = {job.name: None for job in jobs}
    waits = {job.name: [after.on for after in job.after if after.on in named] for job in jobs}
    return list(graphlib.TopologicalSorter(waits).static_order())
