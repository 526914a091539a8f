"""The tree of tenants is kept, and made anew when one is configured."""

from __future__ import annotations

from libs.contracts.gateway import ANY_TYPE, TenantConfigured
from libs.testing.core_case import CoreCase
from services.quota.core.nouns import Tenant
from services.quota.core.tree import Tree
from services.quota.service import SERVICE


def test_what_is_above_below_and_left():
    tenants = {
        "research": Tenant(guarantees={"v100": 8, ANY_TYPE: 4}),
        "vision": Tenant(parent="research", guarantees={"v100": 6}),
        "speech": Tenant(parent="research", guarantees={"k80": 3}),
        "birds": Tenant(parent="vision"),
    }
    tree = Tree(tenants)
    for _ in range(2):  # found, then known
        assert list(tree.chain("birds")) == ["birds", "vision", "research"]
        assert list(tree.below("research")) == ["research", "vision", "speech", "birds"]
        assert tree.net("research") == {"v100": 2, ANY_TYPE: 1}
        assert (list(tree.chain("unknown")), tree.net("unknown")) == (["unknown"], {})


def test_a_change_that_it_is_not_told_of_is_found():
    tenants = {"a": Tenant(guarantees={"v100": 8})}
    tree = Tree(tenants)
    assert tree.net("a") == {"v100": 8}
    tenants["a"].guarantees = {"v100": 4}
    assert not tree.agrees()


def test_it_is_another_one_when_a_tenant_is_configured():
    case = CoreCase(SERVICE)
    case.give(TenantConfigured(tenant="a", gpu_limit=None, requested_by="op", guarantees={"v100": 8}))
    assert case.replica.state.tree.net("a") == {"v100": 8}
    assert case.replica.state.has_guarantees
    case.give(TenantConfigured(tenant="a", gpu_limit=None, requested_by="op", guarantees={"v100": 4}))
    assert case.replica.state.tree.net("a") == {"v100": 4}
    case.give(TenantConfigured(tenant="a", gpu_limit=8, requested_by="op"))
    assert not case.replica.state.has_guarantees
