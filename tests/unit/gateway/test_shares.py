"""What a tenant cannot be given, with both numbers; and what tenants have, lend and are owed."""

from __future__ import annotations

from typing import Any

import pytest

from libs.contracts.features import TRIALS, pool
from libs.contracts.gateway import TenantConfigured
from libs.contracts.read_models import GpuRow, NodeRow, TenantRow
from libs.testing.core_case import node
from services.gateway.core.shares import Use, refusal, shared_gpus, uses
from tests.unit.projection.story import Story

V100 = {"v100": 16}


def tenant(name: str, **fields: Any) -> TenantRow:
    return TenantRow(name=name, **fields)


def asked(name: str = "vision", gpu_limit: int | None = None, **fields: Any) -> TenantConfigured:
    return TenantConfigured(tenant=name, gpu_limit=gpu_limit, requested_by="op", **fields)


TREE = [
    tenant("research", guarantees={"v100": 12}),
    tenant("vision", parent="research", guarantees={"v100": 8}),
    tenant("sales", guarantees={"v100": 4}),
]


@pytest.mark.parametrize(
    ("event", "pointer", "message"),
    [
        (asked(parent="reserch"), "/parent", "there is no tenant reserch: expected one of research, vision, sales"),
        (asked("research", parent="vision"), "/parent", "research would be below itself: vision below research"),
        (asked(parent="vision"), "/parent", "vision would be below itself"),
        (asked(guarantees={"h100": 1}), "/guarantees/h100", "no node of the cell has GPUs of type h100"),
        (asked(limits={"h100": 1}), "/limits/h100", "expected one of v100"),
        (asked(limits={"any": 1}), "/limits/any", "`gpu_limit` counts all types together"),
        (asked(per_user={"h100": 1}), "/per_user/h100", "expected one of v100, any"),
        (asked(gpu_limit=4, guarantees={"v100": 5}), "/gpu_limit", "5 GPUs are guaranteed"),
        (asked(limits={"v100": 4}, guarantees={"v100": 5}), "/limits/v100", "5 GPUs of type v100 are guaranteed"),
        (
            asked(parent="research", guarantees={"v100": 13}),
            "/guarantees",
            "tenants below research are guaranteed 13 GPUs of type v100, and research 12",
        ),
        (
            asked("research", guarantees={"v100": 7}),
            "/guarantees",
            "tenants below research are guaranteed 8 GPUs of type v100, and research 7",
        ),
        (
            asked("sales", guarantees={"v100": 5}),
            "/guarantees",
            "all tenants together would be guaranteed 17 GPUs of type v100, and the cell has 16: expected at most as "
            "many (research 12, sales 5)",
        ),
        (asked("sales", guarantees={"any": 5}), "/guarantees", "guaranteed 17 GPUs, and the cell has 16"),
    ],
)
def test_what_cannot_be_is_refused_with_the_numbers(event: TenantConfigured, pointer: str, message: str):
    found = refusal(event, TREE, V100, guests=False)
    assert found is not None
    assert found.pointer == pointer
    assert message in found.message


@pytest.mark.parametrize(
    "event",
    [
        asked(parent="research", guarantees={"v100": 12}),
        asked("speech", parent="research"),
        asked("speech", gpu_limit=100, limits={"v100": 99}),
        asked("sales", guarantees={"any": 4}, per_user={"any": 2}, lend=False, borrow=False),
        asked("sales", guarantees={}),
    ],
)
def test_what_can_be_is_not_refused(event: TenantConfigured):
    assert refusal(event, TREE, V100, guests=False) is None


def test_without_nodes_nothing_is_held_against_the_cell():
    assert refusal(asked(guarantees={"h100": 1000}), [], {}, guests=False) is None


def test_with_guests_on_the_limits_together_fit_into_the_cell():
    rows = [tenant("a", gpu_limit=10), tenant("b", gpu_limit=4), tenant("c")]
    found = refusal(asked("b", gpu_limit=7), rows, V100, guests=True)
    assert found is not None
    assert "would be 17 GPUs, and it has 16; lower that of one of these by 1: a 10, b 7" in found.message
    assert refusal(asked("b", gpu_limit=6), rows, V100, guests=True) is None
    assert refusal(asked("b", gpu_limit=7), rows, V100, guests=False) is None


def test_use_as_a_tree():
    rows = [
        tenant("research", guarantees={"v100": 12}),
        tenant("vision", parent="research", guarantees={"v100": 8}, granted_gpus=9),
        tenant("speech", parent="research", granted_gpus=5),
        tenant("sales", guarantees={"v100": 4}, granted_gpus=1),
    ]
    found = uses(rows, 16, {"sales": 5, "speech": 2})
    assert found["vision"] == Use(8, 0, 0, 0, 0), "one of its nine is within what research has left"
    assert found["speech"] == Use(0, 2, 0, 2, 0)
    assert found["sales"] == Use(4, 0, 2, 5, 3)


def test_without_guarantees_nothing_is_borrowed():
    assert uses([tenant("a", granted_gpus=4)], 16, {"a": 2})["a"] == Use(0, 0, 0, 2, 0)


def test_gpus_of_the_pool_for_trials_are_guaranteed_to_no_tenant() -> None:
    apart = node("p1", 4, features=[pool(TRIALS)]), node("p2", 4, gpu_type="k80", features=[pool(TRIALS)])
    rows = Story().says(node("n1", 2), *apart).rows
    there = shared_gpus(rows.all(NodeRow), rows.all(GpuRow))
    assert there == {"v100": 2, "k80": 0}
    found = refusal(asked(guarantees={"v100": 3}), [], there, guests=False)
    assert found is not None and "and the cell has 2" in found.message
