"""How an agent is told what to join."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch_agent.options import parse

from libs.node.lease import LeaseTerms

JOIN = ("--join", "https://127.0.0.2:8420")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NODE_TIMEOUT_S", "LEASE_MARGIN_S", "LEASE_GRACE_S"):
        monkeypatch.delenv(f"SANJAYA_{name}", raising=False)
    for name in ("BUS", "GATEWAY", "TOKEN", "TOKEN_FILE", "ADDRESS", "CELL_KEY_FILE", "PIN_VIRTUAL_GPUS", "PART"):
        monkeypatch.delenv(f"SANJAYA_{name}", raising=False)


def test_join_is_where_log_and_code_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANJAYA_BUS", "sqlite:///elsewhere")
    options = parse([*JOIN, "--token", " secret\n"])
    assert (options.bus, options.gateway, options.token) == (JOIN[1], JOIN[1], "secret")
    assert options.address.startswith("127."), "the address that faces the gateway"
    assert parse([*JOIN, "--address", "10.0.0.7"]).address == "10.0.0.7"
    monkeypatch.setenv("SANJAYA_BUS", f"{JOIN[1]}/")
    assert parse(["--token", "secret"]) == options


def test_the_lease_is_that_of_the_cells_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse([*JOIN]).lease == LeaseTerms(node_timeout_s=20.0, margin_s=4.0, grace_s=600.0)
    for name, value in (("NODE_TIMEOUT_S", "40"), ("LEASE_MARGIN_S", "5"), ("LEASE_GRACE_S", "60")):
        monkeypatch.setenv(f"SANJAYA_{name}", value)
    assert parse([*JOIN]).lease == LeaseTerms(node_timeout_s=40.0, margin_s=5.0, grace_s=60.0)


def test_a_token_comes_from_a_flag_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("from the file\n")
    monkeypatch.setenv("SANJAYA_TOKEN", "from the environment")
    assert parse([*JOIN]).token == "from the environment"
    assert parse([*JOIN, "--token-file", str(file)]).token == "from the file"
    assert parse([*JOIN, "--token-file", str(file), "--token", "given"]).token == "given"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--bus or --join (or SANJAYA_BUS) is needed"),
        (["--join", "there:8420"], "--join 'there:8420': expected https://HOST:PORT"),
        (
            [*JOIN, "--node-timeout", "3"],
            "a node time-out of 3 s with a lease margin of 4 s: expected a margin above 0",
        ),
        ([*JOIN, "--heartbeat", "16"], "a heartbeat every 16 s, a node time-out of 20 s with a lease margin of 4 s"),
        ([*JOIN, "--peak-s", "-1"], "--peak-s -1.0: expected 0 or more seconds"),
        ([*JOIN, "--interference-target", "0"], "--interference-target 0: expected more than 0, and 0.5 at most"),
        ([*JOIN, "--interference-target", "nan"], "--interference-target nan: expected more than 0, and 0.5 at most"),
        ([*JOIN, "--interference-target", "0.6"], "--interference-target 0.6: expected more than 0, and 0.5 at most"),
        ([*JOIN, "--interference-target", "1%"], "argument --interference-target: invalid float value: '1%'"),
        ([*JOIN, "--token-file", "/no/such/file"], "--token-file /no/such/file: No such file or directory"),
        ([*JOIN, "--token-file", sys.executable], f"--token-file {sys.executable}: what it holds is no text; expected"),
        (
            [*JOIN, "--part-of-machine", "2", "--part", "3"],
            "--part 3: expected 1 to 2, the number of --part-of-machine",
        ),
        ([*JOIN, "--pin-virtual-gpus"], "--pin-virtual-gpus: expected --virtual-gpus N as well"),
    ],
)
def test_what_cannot_be_meant_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_what_guests_may_cost_an_owner_comes_from_a_flag_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SANJAYA_INTERFERENCE_TARGET", raising=False)
    assert parse(JOIN).interference_target == 0.01
    assert parse([*JOIN, "--interference-target", "0.04"]).interference_target == 0.04
    monkeypatch.setenv("SANJAYA_INTERFERENCE_TARGET", "0.03")
    assert parse(JOIN).interference_target == 0.03
    assert parse([*JOIN, "--interference-target", "0.04"]).interference_target == 0.04
    monkeypatch.setenv("SANJAYA_INTERFERENCE_TARGET", "a little")
    with pytest.raises(SystemExit):
        parse(JOIN)
    assert "--interference-target: invalid float value: 'a little'" in capsys.readouterr().err


def test_agents_side_by_side_begin_on_cpus_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_agent.options.machine_cpus", lambda: [0, 1, 2, 3, 4])
    parts = [parse([*JOIN, "--part-of-machine", "2", "--part", part]).cpus for part in ("1", "2")]
    assert parts == [(0, 1), (2, 3)]
    assert parse([*JOIN, "--part-of-machine", "2", "--part", "2", "--cpus", "4"]).cpus == (2, 3, 4, 0)


def test_virtual_gpus_have_cpus_where_there_are_enough_or_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch_agent.options.machine_cpus", lambda: [4, 5])
    assert parse([*JOIN, "--virtual-gpus", "2"]).gpu_cpus == {0: 4, 1: 5}
    assert parse([*JOIN, "--virtual-gpus", "2", "--no-pin-virtual-gpus"]).gpu_cpus == {}
    assert parse([*JOIN, "--virtual-gpus", "3"]).gpu_cpus == {}, "two jobs would meet on a CPU while another idles"
    assert parse([*JOIN, "--virtual-gpus", "3", "--pin-virtual-gpus"]).gpu_cpus == {0: 4, 1: 5, 2: 4}
    assert parse([*JOIN]).gpu_cpus == {}, "real GPUs have none"
    monkeypatch.setenv("SANJAYA_PIN_VIRTUAL_GPUS", "1")
    assert parse([*JOIN, "--virtual-gpus", "3"]).gpu_cpus == {0: 4, 1: 5, 2: 4}
    assert parse([*JOIN, "--virtual-gpus", "3", "--no-pin-virtual-gpus"]).gpu_cpus == {}


def test_a_node_is_set_apart_by_a_flag_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse(JOIN).features == parse(["--image-runner", "none", *JOIN]).features
    assert "pool:trial" not in parse(JOIN).features
    assert "pool:trial" in parse([*JOIN, "--pool", "trial"]).features
    monkeypatch.setenv("SANJAYA_POOL", "trial")
    assert "pool:trial" in parse(JOIN).features
    monkeypatch.setenv("SANJAYA_POOL", "other")
    with pytest.raises(SystemExit):
        parse(JOIN)
    assert "SANJAYA_POOL=other: expected trial" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "flag", "kind"),
    [
        ("PEAK_S", "--peak-s", "float"),
        ("OUTPUTS_GIB", "--outputs-gib", "float"),
        ("OUTPUTS_DAYS", "--outputs-days", "float"),
        ("SETUPS_GIB", "--setups-gib", "float"),
        ("SETUPS_DAYS", "--setups-days", "float"),
        ("SETUP_LIMIT_S", "--setup-limit", "float"),
        ("PART", "--part", "int"),
    ],
)
def test_a_variable_that_is_no_number_is_a_mistake_of_use(
    variable: str, flag: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"SANJAYA_{variable}", "many")
    with pytest.raises(SystemExit) as ended:
        parse(JOIN)
    assert ended.value.code == 2
    assert f"argument {flag}: invalid {kind} value: 'many'" in capsys.readouterr().err
