"""How an agent is told what to join."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_agent.options import parse

JOIN = ("--join", "https://127.0.0.2:8420")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUS", "GATEWAY", "TOKEN", "TOKEN_FILE", "ADDRESS", "CELL_KEY_FILE"):
        monkeypatch.delenv(f"SANJAYA_{name}", raising=False)


def test_join_is_where_log_and_code_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANJAYA_BUS", "sqlite:///elsewhere")
    options = parse([*JOIN, "--token", " secret\n"])
    assert (options.bus, options.gateway, options.token) == (JOIN[1], JOIN[1], "secret")
    assert options.address.startswith("127."), "the address that faces the gateway"
    assert parse([*JOIN, "--address", "10.0.0.7"]).address == "10.0.0.7"
    monkeypatch.setenv("SANJAYA_BUS", f"{JOIN[1]}/")
    assert parse(["--token", "secret"]) == options


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
        ([*JOIN, "--peak-s", "-1"], "--peak-s -1.0: expected 0 or more seconds"),
        ([*JOIN, "--token-file", "/no/such/file"], "--token-file /no/such/file: No such file or directory"),
    ],
)
def test_what_cannot_be_meant_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
