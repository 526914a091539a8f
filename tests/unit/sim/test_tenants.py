"""The table of virtual clusters that a simulation is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.contracts.bad_input import BadInput
from libs.sim.tenants import read_tenants

PHILLY = Path(__file__).parents[4] / "shared" / "data" / "clusters" / "philly-vcs.csv"


def read(tmp_path: Path, text: str, total_gpus: int = 64) -> dict[str, object]:
    path = tmp_path / "tenants.csv"
    path.write_text(text)
    found = read_tenants(path, gpus_per_server=8, total_gpus=total_gpus, requested_by="test")
    return {tenant.tenant: (tenant.guarantees, tenant.gpu_limit, tenant.weight, tenant.parent) for tenant in found}


def test_servers_and_gpus(tmp_path: Path):
    assert read(tmp_path, "tenant,servers\na,2\nb,0\n") == {"a": ({"any": 16}, None, 1, ""), "b": ({}, None, 1, "")}
    tree = "tenant,guarantee,limit,weight,parent\ntop,60,,2,\na,4,8,,top\n"
    assert read(tmp_path, tree) == {"top": ({"any": 60}, None, 2.0, ""), "a": ({"any": 4}, 8, 1, "top")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers\n1\n", "tenant and one of servers and guarantee"),
        ("tenant,servers,guarantee\na,1,1\n", "tenant and one of servers and guarantee"),
        ("tenant,servers,colour\na,1,red\n", "column colour"),
        ("tenant,servers\na,1.5\n", "line 2, column servers: 1.5; expected a whole number"),
        ("tenant,servers\na,1\na,1\n", "line 3, column tenant: a; expected a name that no other row has"),
        ("tenant,servers,weight\na,1,0\n", "line 2, column weight: 0; expected a number above 0"),
        ("tenant,servers,parent\na,1,b\nb,1,\n", "tenant a: parent b; expected a tenant of a row above"),
        ("tenant,servers\na,9\n", "72 GPUs are guaranteed; expected no more than the 64 GPUs of the cluster"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str):
    with pytest.raises(BadInput, match=message.replace("(", r"\(")):
        read(tmp_path, text)


@pytest.mark.skipif(not PHILLY.exists(), reason="the study's table is not there")
def test_the_virtual_clusters_of_the_study():
    found = read_tenants(PHILLY, gpus_per_server=8, total_gpus=2816, requested_by="test")
    assert sum(tenant.guarantees["any"] for tenant in found) == 2816
