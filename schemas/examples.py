"""A plausible example of each event, derived from its fields' names and types."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from libs.contracts.base import Event

BY_NAME: dict[str, Any] = {
    "job_id": "j-7f3akq2m5c",
    "node_id": "n1",
    "tenant": "vision",
    "user": "ada",
    "requested_by": "ada",
    "submitted_by": "ada",
    "command": ["python", "train.py"],
    "name": "resnet-50",
    "migration_id": "m-2qk7wz5n3d",
    "service": "placement",
    "policy": "backfill",
    "gpu_indices": [0, 1],
    "gpu_type": "v100",
    "gpu_types": ["v100"],
    "types": ["v100"],
    "node_ids": ["n1"],
    "from_nodes": ["n1"],
    "to_nodes": ["n2"],
    "nodes": ["n1"],
    "started": ["n1"],
    "code": "InsufficientGpus",
    "message": "needs 2 GPUs; 1 is free",
    "what": "n2",
    "outcome": "exited",
    "stream": "stdout",
    "address": "10.0.0.7",
    "rack": "r1",
    "rendezvous_host": "10.0.0.7",
    "launcher": "ranks",
    "failure": "gpu_out_of_memory",
    "category": "ai_engine",
    "excluded_types": ["k80"],
}
"""Values for fields with names that say more than their types."""


def of(cls: type[Event]) -> Event:
    """An instance with every field set."""
    return msgspec.convert(_struct(cls), cls)


def _struct(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.encode_name: _value(field.name, hints[field.name]) for field in msgspec.structs.fields(cls)}


def _value(name: str, hint: Any) -> Any:
    if name in BY_NAME:
        return BY_NAME[name]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _value(name, next(a for a in arguments if a is not type(None)))
    if origin in (list, tuple):
        return [_value(name.removesuffix("s"), arguments[0])]
    if origin is dict:
        return {"key": _value(name, arguments[1])}
    if origin is Literal:
        return arguments[0]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint)).value
    return _scalar(name, hint)


def _scalar(name: str, hint: Any) -> Any:
    if hint is bool:
        return True
    if hint is int:
        return 1 << 30 if name.endswith("_bytes") else 1
    if hint is float:
        return 0.5 if name.endswith("_ratio") else 12.5
    if hint is str:
        return name.replace("_", " ")
    raise TypeError(f"no example for field {name!r} of type {hint!r}")
