"""`sanjaya simulate`: whatever is wrong with its files and options, it says where and ends with 2."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.cli.main import main

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
HEADER = "job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s"
TRACE = f"{HEADER}\na,0,t,LM,5,1,1000,\n"
CONFIG = {"model": "LM", "batch_size": 5, "gpus": 1}
TABLE: dict[str, Any] = {
    "format": "throughputs/1",
    "gpu_types": ["v100", "k80"],
    "isolated": [{**CONFIG, "consolidated": True, "steps_per_s": {"v100": 10.0, "k80": 2.0}}],
    "colocated": [
        {
            "a": CONFIG,
            "b": CONFIG,
            "gpu_type": "v100",
            "consolidated": True,
            "a_steps_per_s": 7.0,
            "b_steps_per_s": 7.0,
        }
    ],
}

Simulate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Simulate]:
    """Runs the command on files of these contents; returns its exit code, what it says and what it prints."""
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.chdir(tmp_path)

    def run(*options: str, trace: str | bytes = TRACE, table: str | bytes | None = None, cluster: str = "v100=4"):
        table = json.dumps(TABLE) if table is None else table
        for name, content in (("t.csv", trace), ("t.json", table)):
            Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        arguments = ["--trace", "t.csv", "--throughputs", "t.json", "--cluster", cluster, *options]
        monkeypatch.setattr("sys.argv", ["sanjaya", "simulate", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed, said = capsys.readouterr()
        return int(end.value.code or 0), said, printed

    yield run
    signal.signal(signal.SIGINT, handler)


def refused(result: tuple[int, str, str], *words: str) -> None:
    code, said, printed = result
    assert code == 2, said
    assert printed == "" and len(said.splitlines()) == 1 and said.startswith("error: ")
    for word in words:
        assert word in said


def test_what_models_ask_of_gpus_is_read_from_a_file(simulate: Simulate, tmp_path: Path):
    phase = {"minibatch_s": 0.1, "busy_ratio": 0.5, "memory_gib": 2}
    models = {"format": "job-models/1", "models": [{"model": "LM", "cycle": [phase]}]}
    (tmp_path / "m.json").write_text(json.dumps(models))
    code, said, printed = simulate("--policy", "antman", "--models", "m.json", "--beside", "pack")
    assert (code, said) == (0, "")
    options = json.loads(printed)["options"]
    assert (options["models"], options["beside"]) == ("m.json", "pack")
    assert json.loads(printed)["sharing"]["owned_s"] == 100.0
    phase["busy_ratio"] = 2.0
    (tmp_path / "m.json").write_text(json.dumps(models))
    refused(simulate("--models", "m.json"), "m.json: $.models[0].cycle[0].busy_ratio", "a number from 0 to 1")


def test_a_simulated_log_with_profiles_says_what_guests_cost(
    simulate: Simulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    phase = {"minibatch_s": 0.05, "busy_ratio": 0.5, "memory_gib": 2.0}
    models = {"format": "job-models/1", "models": [{"model": "LM", "cycle": [phase]}]}
    (tmp_path / "m.json").write_text(json.dumps(models))
    trace = f"{HEADER},class\nowner,0,t,LM,5,1,3000,,guaranteed\nguest,120,u,LM,5,1,600,,opportunistic\n"
    options = ("--policy", "antman", "--models", "m.json", "--log", "log", "--out", "r.json")
    counts = {}
    for every in (("--profile-every-s", "20"), ()):
        assert simulate(*options, *every, trace=trace, cluster="v100=1")[0] == 0
        monkeypatch.setattr("sys.argv", ["sanjaya", "interference", "log", "--json"])
        with pytest.raises(SystemExit):
            main()
        rows = json.loads(capsys.readouterr().out)
        counts[bool(every)] = {row["slowdown"]: (row["by_absolute_rule"], row["by_relative_rule"]) for row in rows}
    assert counts[True]["none"] == (1, 1), "a slowdown of 2 % is none by either rule"
    assert set(counts[False].values()) == {(0, 0)}, "nothing was measured"


def test_good_files(simulate: Simulate):
    code, said, printed = simulate()
    assert (code, said) == (0, "")
    assert json.loads(printed)["summary"]["completed"] == 1


@pytest.mark.parametrize(
    ("trace", "where"),
    [
        ("", "t.csv: an empty file"),
        (b"\x89PNG\xff", "t.csv: byte 0 is not UTF-8"),
        ("job_id,gpus\n", "t.csv:1: no column submit_time_s"),
        (f'{HEADER}\n"a,0,t,LM,5,1,10,\n', "t.csv:2: no CSV"),
        (f"{HEADER}\n{'a' * 200_000},0,t,LM,5,1,10,\n", "t.csv:2: no CSV"),
        (f"{HEADER}\na,0,t,LM,5,-1,10,\n", "t.csv:2, column gpus: '-1'"),
        (f"{HEADER}\na,0,t,LM,5,1e300,10,\n", "t.csv:2, column gpus: '1e300'"),
        (f"{HEADER}\na,nan,t,LM,5,1,10,\n", "t.csv:2, column submit_time_s: 'nan'"),
        (f"{HEADER}\na,0,t,LM,5,1,,-inf\n", "t.csv:2, column duration_s: '-inf'"),
        (f"{HEADER}\na,0,t,LM,5,1,,1e300\n", "t.csv:2, column duration_s: '1e300'"),
        (f"{HEADER}\na,0,t,LM,5,1,-10,\n", "t.csv:2, column total_steps: '-10'"),
        (f"{HEADER},weight\na,0,t,LM,5,1,10,,0\n", "t.csv:2, column weight: '0'"),
        (f"{HEADER},elastic_min,elastic_max\na,0,t,LM,5,2,10,,4,1\n", "columns elastic_min and elastic_max: 4:1"),
        (f"{HEADER},elastic_max\na,0,t,LM,5,2,10,,1\n", "columns elastic_min and elastic_max: :1"),
        (f"{TRACE}b,0,t,LM,5,1\n", "t.csv:3: too few cells"),
        (f"{TRACE}a,5,t,LM,5,1,10,\n", "t.csv:3, column job_id: 'a' a second time"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_broken_traces(simulate: Simulate, trace: str | bytes, where: str):
    refused(simulate(trace=trace), where, "; expected ")


def changed(path: str, value: Any) -> str:
    document: Any = copy.deepcopy(TABLE)
    place = document
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        place = place[step]
    place[last] = value
    return json.dumps(document)


TEXT = json.dumps(TABLE)


@pytest.mark.parametrize(
    ("table", "where"),
    [
        ("", "t.json: an empty file"),
        (TEXT[:50], "t.json:1: no JSON: it ends too early"),
        ("[" * 100_000, "t.json: no JSON: nested too deeply"),
        (TEXT.encode() + b"\xff", "is not UTF-8"),
        (TEXT.replace("10.0", "NaN"), "t.json: $.isolated[0].steps_per_s.v100: NaN"),
        (TEXT.replace("10.0", "Infinity"), "t.json: $.isolated[0].steps_per_s.v100: Infinity"),
        (TEXT.replace("10.0", "1e999"), "t.json: $.isolated[0].steps_per_s.v100: inf"),
        (TEXT.replace("10.0", "1" + "0" * 400), "t.json: $.isolated[0].steps_per_s.v100: 1000"),
        (TEXT.replace("10.0", "1e-308"), "t.json: $.isolated[0].steps_per_s.v100: 1e-308"),
        (changed("format", "throughputs/2"), "t.json: $.format: 'throughputs/2'"),
        (changed("gpu_types", ["v100", "k80", "v100"]), "t.json: $.gpu_types[2]: 'v100' a second time"),
        (changed("isolated.0", None), "t.json: $.isolated[0]: nothing"),
        (changed("isolated.0.gpus", 0), "t.json: $.isolated[0].gpus: 0"),
        (changed("isolated.0.steps_per_s.v100", -1), "t.json: $.isolated[0].steps_per_s.v100: -1"),
        (changed("isolated.0.steps_per_s", [1]), "t.json: $.isolated[0].steps_per_s: [1]"),
        (changed("colocated.0.a_steps_per_s", -1), "t.json: $.colocated[0].a_steps_per_s: -1"),
        (changed("colocated.0.b", {**CONFIG, "gpus": 2}), "t.json: $.colocated[0].b.gpus: 2; expected 1"),
        (changed("colocated.0.gpu_type", ["v100"]), "t.json: $.colocated[0].gpu_type: ['v100']"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_broken_throughputs(simulate: Simulate, table: str | bytes, where: str):
    refused(simulate(table=table), where, "; expected ")


@pytest.mark.parametrize(
    "cluster", ["", "v100", "v100=0", "v100=-1", "v100=4,", "v100=1e3", "v100=9999999", "v100=1,v100=1"]
)
def test_broken_clusters(simulate: Simulate, cluster: str):
    refused(simulate(cluster=cluster), "--cluster", "; expected ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy", "magic"], ["'magic'", "max_min_fairness"]),
        (["--round-s", "nan"], ["--round-s"]),
        (["--round-s", "inf"], ["--round-s inf"]),
        (["--round-s", "-5"], ["--round-s"]),
        (["--checkpoint-overhead-s", "nan"], ["--checkpoint-overhead-s"]),
        (["--checkpoint-overhead-s", "inf"], ["--checkpoint-overhead-s inf"]),
        (["--gpus-per-server", "0"], ["--gpus-per-server"]),
        (["--measure", "5"], ["--measure '5'", "FIRST:END"]),
        (["--profiled", "0.2", "--references", "4"], ["--profiled 0.2", "--space-sharing and --references"]),
        (["--profiled", "0.2", "--space-sharing"], ["--profiled 0.2", "--space-sharing and --references"]),
        (["--measure", "5:3"], ["--measure '5:3'", "FIRST:END"]),
        (["--measure", "7:9"], ["--measure: 7:9", "jobs of the trace, which has 1"]),
        (["--out", "none/result.json"], ["none/result.json: there is no directory none"]),
        (["--out", "."], ["a directory"]),
        (["--log", "none/log.jsonl"], ["none/log.jsonl: there is no directory none"]),
        (["--trace", "none.csv"], ["none.csv: No such file"]),
        (["--throughputs", "none.json"], ["none.json: No such file"]),
        (["--speed", "9"], ["--speed"]),
    ],
)
def test_broken_options(simulate: Simulate, options: list[str], words: list[str]):
    refused(simulate(*options), *words)


def test_a_job_without_a_rate_is_left_out_with_a_warning(simulate: Simulate):
    code, said, printed = simulate(trace=f"{TRACE}b,0,t,BERT,8,1,10,\n")
    assert code == 0 and json.loads(printed)["summary"]["jobs"] == 1
    assert said == "warning: job b is left out: no rate for model 'BERT', batch size 8, 1 GPU\n"


def test_unknown_fields_are_ignored_with_a_warning(simulate: Simulate):
    code, said, _ = simulate(table=changed("isolated.0.colour", "red"))
    assert code == 0
    assert said == "warning: t.json: $.isolated[0].colour is not part of throughputs/1 and is ignored\n"


def test_standard_input_is_read_like_a_file():
    command = [SANJAYA, "simulate", "--trace", "-", "--cluster", "v100=1"]
    rows = f"{HEADER}\na,0,t,,,1,,10\n".encode()
    done = subprocess.run(command, input=b"\xef\xbb\xbf" + rows, capture_output=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(command, input=rows + b"\xff", capture_output=True)
    assert done.returncode == 2 and b"is not UTF-8" in done.stderr
