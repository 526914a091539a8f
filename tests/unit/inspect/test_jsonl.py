"""Exported logs: what is written is read back verbatim, and broken files are named by line."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace

import pytest

from libs.bus.port import Message, Partition
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.jsonl import read_jsonl, write_jsonl
from libs.inspect.logs import Header, Log
from libs.inspect.parquet import ParquetMissing, write_parquet
from tests.unit.inspect.small_cell import header, messages


def exported(*sent: Message) -> bytes:
    out = io.BytesIO()
    assert write_jsonl(Log(header(), iter(sent)), out) == len(sent)
    return out.getvalue()


def test_a_log_is_read_back_as_it_was():
    log = read_jsonl(io.BytesIO(exported(*messages())), "log.jsonl")
    assert log.header == header()
    assert list(log.messages) == messages()


def test_the_format_is_plain_json_lines():
    first, second = exported(messages()[0]).splitlines()
    head, line = json.loads(first), json.loads(second)
    assert head["format"] == "sanjaya-log/1"
    assert head["positions"]["placement"] > 0
    assert (line["topic"], line["partition"], line["offset"], line["key"]) == ("control", 0, 0, "v100-000")
    assert line["headers"]["ce_type"] == "node.joined.v1"
    assert line["data"]["node_id"] == "v100-000"


@pytest.mark.parametrize(
    "value", [b'{"a": 1.50,  "b":1e3}', b'"text"', b"[]", b"not json", b"\xff\x00", b"{\n}", b" {}", b""]
)
def test_data_is_kept_to_the_byte(value: bytes):
    sent = replace(messages()[0], value=value)
    (received,) = read_jsonl(io.BytesIO(exported(sent)), "x").messages
    assert received.value == value


def test_headers_that_are_no_text_are_kept():
    sent = replace(messages()[0], headers=[("ce_id", b"1"), ("x-raw", b"\xff\xfe")])
    (received,) = read_jsonl(io.BytesIO(exported(sent)), "x").messages
    assert received.headers == sent.headers


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        (b"", "log.jsonl:1", "a header line of sanjaya-log/1"),
        (b"[]\n", "log.jsonl:1", "a header line of sanjaya-log/1"),
        (b'{"format":"sanjaya-log/9","cell":"x"}\n', "format 'sanjaya-log/9'", "'sanjaya-log/1'"),
        (b'{"format":"sanjaya-log/1","cell":"x"}\n\n{"topic":"control"}\n', "log.jsonl:3", "a record"),
        (b'{"format":"sanjaya-log/1","cell":"x"}\n{"topic":"gossip"}\n', "log.jsonl:2", "a record"),
        (b'{"format":"sanjaya-log/1","cell":"x"}\n{', "log.jsonl:2", "a record"),
        (
            b'{"format":"sanjaya-log/1","cell":"x"}\n{"topic":"control","partition":0,"offset":0,"appended_at_s":0,'
            b'"key":"","headers":{}}\n',
            "neither data nor data_base64",
            "one of them",
        ),
        (
            b'{"format":"sanjaya-log/1","cell":"x"}\n{"topic":"control","partition":0,"offset":0,"appended_at_s":0,'
            b'"key":"","headers":{},"data_base64":"!"}\n',
            "log.jsonl:2",
            "a record",
        ),
    ],
)
def test_a_broken_file_is_named_by_line(text: bytes, where: str, expected: str):
    with pytest.raises(BadInput) as error:
        list(read_jsonl(io.BytesIO(text), "log.jsonl").messages)
    assert where in str(error.value)
    assert expected in str(error.value)


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "log.parquet"
    assert write_parquet(Log(header(), iter(messages())), path) == len(messages())
    table = parquet.read_table(path)
    assert table.num_rows == len(messages())
    assert table.column("type")[0].as_py() == "node.joined.v1"
    assert json.loads(table.column("data")[0].as_py())["node_id"] == "v100-000"
    assert table.schema.metadata[b"cell"] == b"simulated"


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetMissing, match="pip install 'pyarrow"):
        write_parquet(Log(header(), iter(messages())), tmp_path / "log.parquet")


def test_a_log_of_no_records():
    log = read_jsonl(io.BytesIO(exported()), "x")
    assert list(log.messages) == []
    assert Header(cell="x").topics == ("control", "orders")
    assert Partition(Topic.CONTROL, 0) == messages()[0].partition
