"""Files of users with brackets in brackets in brackets: a sentence, whoever reads them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from libs.cli import config
from libs.cli.documents import document
from libs.contracts.bad_input import BadInput
from libs.failures.consequences import read_table
from libs.failures.reading import read
from libs.failures.records import looks_like_records, records
from libs.inspect.archive.manifest import MANIFEST, read_manifest
from libs.inspect.jsonl import FORMAT, read_jsonl
from libs.kernel.yaml_text import DEEPEST, read_yaml
from libs.sim.documents import read_json
from libs.studies.experiments.grids import read_grid
from services.gateway.adapters.tokens import Tokens, TokensUnreadable

DEEP = "[" * 100_000
IN_YAML = f"command: {DEEP}"
IN_JSON = f'{{"command": {DEEP}'


def _file(folder: Path, text: str, name: str = "deep") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _manifest(folder: Path) -> object:
    _file(folder, IN_JSON, MANIFEST)
    return read_manifest(folder)


def _log(*lines: str) -> object:
    return list(read_jsonl([line.encode() for line in lines], "deep").records)


HEADER = f'{{"format": "{FORMAT}", "cell": "c"}}\n'
READERS: dict[str, Callable[[Path], object]] = {
    "a job": lambda folder: document(IN_YAML, "deep", "a job"),
    "a job in JSON": lambda folder: document(IN_JSON, "deep", "a job"),
    "a job in blocks": lambda folder: document("\n".join(" " * n + "a:" for n in range(3000)), "deep", "a job"),
    "rules": lambda folder: read([("deep", IN_YAML)]),
    "consequences": lambda folder: read_table("deep", IN_YAML, []),
    "records of failures": lambda folder: list(records("deep", IN_JSON)),
    "throughputs": lambda folder: read_json(_file(folder, IN_JSON), "throughputs/1"),
    "experiments": lambda folder: read_grid(_file(folder, IN_YAML)),
    "a manifest": _manifest,
    "a log": lambda folder: _log(IN_JSON),
    "configuration": lambda folder: config._read(_file(folder, f"a = {DEEP}")),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_nested_too_deeply_is_refused_with_a_sentence(reader: str, tmp_path: Path):
    with pytest.raises(BadInput, match=r"deep|recursion"):
        READERS[reader](tmp_path)


def test_tokens_nested_too_deeply_are_refused_with_a_sentence(tmp_path: Path):
    with pytest.raises(TokensUnreadable, match=f"deep:1: nested more than {DEEPEST} deep"):
        Tokens.read(_file(tmp_path, f"tokens: {DEEP}"))


def test_a_log_of_a_job_may_begin_with_as_many_brackets_as_it_likes():
    assert not looks_like_records("job.log", IN_JSON)


def test_what_is_not_too_deep_is_read_and_what_is_no_yaml_is_told_with_its_line():
    nested = "[" * DEEPEST + "]" * DEEPEST
    assert read_yaml(nested, "deep", yaml.safe_load) is not None
    with pytest.raises(BadInput, match=r"^job\.yaml:2: .*; expected YAML$"):
        read_yaml("a: 1\nb: [", "job.yaml", yaml.safe_load)


def test_the_loader_in_c_is_not_let_near_it():
    """It would end the process: so this is a process of its own."""
    script = "from libs.failures.reading import read; read([('deep', 'rules: ' + '[' * 100_000)])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "nested more than" in done.stderr
