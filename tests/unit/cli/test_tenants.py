"""The options of `sanjaya tenant set`, and the tree of `sanjaya tenants`."""

from __future__ import annotations

import pytest

from libs.cli.tenants import as_tree, gpus_per_type, per_type


def test_gpus_per_type():
    assert gpus_per_type("--limit", ["v100=32", "8"]) == {"v100": 32, "any": 8}
    assert gpus_per_type("--limit", ["none"]) == {}
    assert gpus_per_type("--limit", None) is None
    assert per_type({"v100": 32, "any": 8}) == "v100=32,8"


@pytest.mark.parametrize("value", ["v100", "v100=", "v100=-1", "v100=1.5", "v100=²"])
def test_gpus_are_whole_numbers(value: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        gpus_per_type("--guarantee", [value])
    assert stopped.value.code == 2
    assert f"--guarantee {value!r}: expected a whole number of GPUs" in capsys.readouterr().err


def test_tenants_stand_behind_the_one_above_them():
    found = [{"name": "b", "parent": ""}, {"name": "a", "parent": "b"}, {"name": "c", "parent": "gone"}]
    assert [(tenant["name"], tenant["depth"]) for tenant in as_tree(found)] == [("b", 0), ("a", 1), ("c", 0)]
