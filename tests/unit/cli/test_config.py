"""Where values come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.cli.config import DEFAULT_GATEWAY, Found, choose_context, chosen_context, configured
from libs.contracts.bad_input import BadInput

USERS = """
gateway = "http://user"
[contexts.lab]
gateway = "http://lab"
token = "secret"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home" / ".config" / "sanjaya"
    folder.mkdir(parents=True)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GATEWAY", "TOKEN", "CELL", "CONTEXT"):
        monkeypatch.delenv(f"SANJAYA_{name}", raising=False)
    monkeypatch.chdir(work)
    return folder


def test_each_place_goes_before_the_next(home: Path, monkeypatch: pytest.MonkeyPatch):
    assert configured("gateway") == Found(DEFAULT_GATEWAY, "default")
    (home / "config.toml").write_text(USERS)
    assert configured("gateway") == Found("http://user", "~/.config/sanjaya/config.toml")
    choose_context("lab")
    assert configured("gateway") == Found("http://lab", "~/.config/sanjaya/config.toml, context lab")
    assert configured("token").value == "secret"
    Path("pyproject.toml").write_text('[tool.sanjaya]\ngateway = "http://project"\n')
    assert configured("gateway") == Found("http://project", "pyproject.toml")
    Path("sanjaya.toml").write_text('gateway = "http://folder"\n')
    assert configured("gateway") == Found("http://folder", "sanjaya.toml")
    monkeypatch.setenv("SANJAYA_GATEWAY", "http://environment")
    assert configured("gateway") == Found("http://environment", "SANJAYA_GATEWAY")
    assert configured("gateway", "http://flag") == Found("http://flag", "--gateway")


def test_a_context_of_the_environment_goes_before_the_chosen_one(home: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "config.toml").write_text(USERS)
    assert chosen_context() is None
    monkeypatch.setenv("SANJAYA_CONTEXT", "lab")
    assert configured("gateway").value == "http://lab"
    monkeypatch.setenv("SANJAYA_CONTEXT", "moon")
    with pytest.raises(BadInput, match="moon"):
        configured("gateway")


@pytest.mark.parametrize("text", ["gateway = ", "gateway = ['a']", "contexts = 3"])
def test_a_broken_file_is_named(home: Path, text: str):
    (home / "config.toml").write_text(text)
    choose_context("lab")
    with pytest.raises(BadInput, match=r"config\.toml"):
        configured("gateway")
