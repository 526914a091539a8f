"""Throughput tables: rates that are looked up, and errors that name the JSON path."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from libs.contracts.bad_input import BadInput
from libs.sim.throughputs import parse_throughputs, read_throughputs

TABLE: dict[str, Any] = {
    "format": "throughputs/1",
    "gpu_types": ["k80", "v100"],
    "isolated": [
        {"model": "LM", "batch_size": 5, "gpus": 1, "consolidated": True, "steps_per_s": {"k80": 2.0, "v100": 10.0}},
        {"model": "LM", "batch_size": 5, "gpus": 4, "consolidated": True, "steps_per_s": {"v100": 30.0}},
        {"model": "LM", "batch_size": 5, "gpus": 4, "consolidated": False, "steps_per_s": {"k80": 0, "v100": 8.0}},
        {"model": "A3C", "batch_size": None, "gpus": 1, "consolidated": True, "steps_per_s": {"k80": 3.0}},
    ],
    "colocated": [
        {
            "a": {"model": "LM", "batch_size": 5, "gpus": 1},
            "b": {"model": "A3C", "batch_size": None, "gpus": 1},
            "gpu_type": "k80",
            "consolidated": True,
            "a_steps_per_s": 1.5,
            "b_steps_per_s": 0,
        }
    ],
}


def test_rates():
    table = parse_throughputs(TABLE, "t.json")
    assert table.rate(("LM", 5, 4), "v100", consolidated=True) == 30.0
    assert table.rate(("LM", 5, 4), "v100", consolidated=False) == 8.0
    assert table.rate(("LM", 5, 4), "k80", consolidated=True) == 0.0, "a type that is missing: cannot run there"
    assert table.rate(("LM", 5, 1), "k80", consolidated=False) == 2.0, "one GPU is never spread"
    assert table.rate(("A3C", None, 1), "k80", consolidated=True) == 3.0
    assert table.rate(("LM", 5, 2), "v100", consolidated=True) is None, "nothing is known of this configuration"
    assert table.knows(("LM", 5, 4)) and not table.knows(("LM", 5, 2))
    (pair,) = table.pairs
    assert (pair.a_steps_per_s, pair.b_steps_per_s) == (1.5, 0.0)


@pytest.mark.parametrize(
    ("path", "value", "where", "expected"),
    [
        (["format"], "throughputs/2", r"$.format: 'throughputs/2'", "'throughputs/1'"),
        (["gpu_types"], "v100", r"$.gpu_types: 'v100'", "an array"),
        (["isolated"], None, r"$.isolated: nothing", "an array"),
        (["isolated", 0, "model"], 7, r"$.isolated[0].model: 7", "a text"),
        (["isolated", 1, "gpus"], 0, r"$.isolated[1].gpus: 0", "a whole number from 1 on"),
        (["isolated", 1, "consolidated"], "yes", r"$.isolated[1].consolidated: 'yes'", "true or false"),
        (["isolated", 0, "steps_per_s", "k80"], -1, r"$.isolated[0].steps_per_s.k80: -1", "0 or more"),
        (["isolated", 0, "steps_per_s", "k80"], float("nan"), r"$.isolated[0].steps_per_s.k80: nan", "0 or more"),
        (["isolated", 0, "steps_per_s"], {"t4": 1.0}, r"$.isolated[0].steps_per_s: 't4'", "one of $.gpu_types"),
        (["isolated", 0, "steps_per_s"], None, r"$.isolated[0].steps_per_s: nothing", "an object"),
        (["colocated", 0, "gpu_type"], "t4", r"$.colocated[0].gpu_type: 't4'", "one of $.gpu_types"),
        (["colocated", 0, "b"], None, r"$.colocated[0].b: nothing", "an object"),
        (["colocated", 0, "a_steps_per_s"], True, r"$.colocated[0].a_steps_per_s: True", "0 or more"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(path, value, where, expected):
    document = copy.deepcopy(TABLE)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(BadInput) as error:
        parse_throughputs(document, "t.json")
    assert f"t.json: {where}" in str(error.value)
    assert expected in str(error.value)


def test_two_rows_for_one_configuration():
    document = copy.deepcopy(TABLE)
    document["isolated"].append(document["isolated"][0])
    with pytest.raises(BadInput, match=r"\$\.isolated\[4\]: a second row"):
        parse_throughputs(document, "t.json")


def test_unknown_fields_are_ignored_with_a_warning():
    warnings: list[str] = []
    parse_throughputs({**TABLE, "measured_by": "ada", "unit": "steps"}, "t.json", warnings.append)
    assert warnings == ["t.json: $.measured_by is not part of throughputs/1 and is ignored"]


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "t.json").write_text("{")
    with pytest.raises(BadInput, match="no JSON"):
        read_throughputs(tmp_path / "t.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(BadInput, match=r"\$: \[\]; expected an object"):
        read_throughputs(tmp_path / "list.json")
