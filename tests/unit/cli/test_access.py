"""A cell belongs to its user: its state directory, its tokens, and where commands find them."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
import yaml

from libs.cli import own_cells
from libs.cli.cell import CellError, CellPlan
from libs.cli.cell.access import Access, own_folder
from libs.cli.config import Found, configured_token
from libs.cli.workdir import select
from libs.contracts.bad_input import BadInput


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GATEWAY", "TOKEN", "CONTEXT"):
        monkeypatch.delenv(f"SANJAYA_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_state_directory_is_made_for_its_user_alone(tmp_path: Path):
    assert not own_folder(tmp_path / "a" / "cell")
    assert mode(tmp_path / "a" / "cell") == 0o700


def test_a_state_directory_inside_a_working_directory_is_not_uploaded_with_it(tmp_path: Path):
    (tmp_path / "train.py").write_text("pass\n")
    own_folder(tmp_path / "cell")
    Access(tmp_path / "cell").prepare()
    assert [entry.name for entry in select(tmp_path, 100).files] == ["train.py"]


def test_a_folder_that_was_there_keeps_its_files(tmp_path: Path):
    (tmp_path / "project").mkdir(mode=0o700)
    own_folder(tmp_path / "project")
    assert not list((tmp_path / "project").iterdir())


def test_one_that_was_open_is_closed(tmp_path: Path):
    (tmp_path / "cell").mkdir(mode=0o755)
    assert own_folder(tmp_path / "cell")
    assert mode(tmp_path / "cell") == 0o700
    assert not own_folder(tmp_path / "cell"), "nothing to say the second time"


def test_one_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "cell").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "cell").stat().st_uid + 1)
    with pytest.raises(CellError, match=r"belongs to .*expected one of .*--state-dir"):
        own_folder(tmp_path / "cell")


def test_tokens_are_kept_over_restarts_and_only_their_hashes_are_told_to_the_gateway(tmp_path: Path):
    access = Access(tmp_path)
    access.prepare()
    token = access.token()
    files = (access.token_file, access.agents_token_file, access.tokens_file)
    assert [mode(path) for path in files] == [0o600] * 3
    access.prepare()
    assert access.token() == token
    told = access.tokens_file.read_text()
    assert token not in told and [e["scopes"] for e in yaml.safe_load(told)["tokens"]] == [["admin"], ["read"]]


def test_a_token_that_others_could_read_is_made_anew(tmp_path: Path):
    access = Access(tmp_path)
    access.prepare()
    token = access.token()
    access.token_file.chmod(0o644)
    access.prepare()
    assert access.token() != token and mode(access.token_file) == 0o600


def test_a_plan_without_tokens_has_none_of_the_environment_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("SANJAYA_TOKENS_FILE", "SANJAYA_TOKEN", "SANJAYA_TOKEN_FILE"):
        monkeypatch.setenv(name, "/of/another/cell")
    assert not [v for v in CellPlan(state_dir=tmp_path).environment().values() if v == "/of/another/cell"]
    closed = CellPlan(state_dir=tmp_path, auth=True, tokens_file=tmp_path / "users.yaml").environment()
    assert closed["SANJAYA_TOKENS_FILE"] == str(tmp_path / "users.yaml")
    assert closed["SANJAYA_TOKEN_FILE"] == str(tmp_path / "own_agents.token")


@pytest.fixture
def cell(tmp_path: Path) -> tuple[int, Access]:
    """The port and the tokens of one that has been started."""
    access = Access(tmp_path / "elsewhere")
    own_folder(access.state_dir)
    access.prepare()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    own_cells.remember(port, access.token_file)
    return port, access


def test_commands_find_the_token_of_a_cell_at_its_port(cell: tuple[int, Access], monkeypatch: pytest.MonkeyPatch):
    port, access = cell
    for host in ("127.0.0.1", "localhost"):
        assert configured_token(f"http://{host}:{port}") == Found(access.token(), str(access.token_file))
    assert configured_token(f"http://127.0.0.1:{port + 1}") == Found("", "default")
    assert configured_token(f"http://head.example:{port}") == Found("", "default")
    monkeypatch.setenv("SANJAYA_TOKEN", "given")
    assert configured_token(f"http://127.0.0.1:{port}") == Found("given", "SANJAYA_TOKEN")


def test_a_cell_that_has_ended_is_forgotten_and_its_successor_is_not(cell: tuple[int, Access], tmp_path: Path):
    port, access = cell
    own_cells.forget(port, tmp_path / "another" / "token")
    assert own_cells.token_of(f"http://127.0.0.1:{port}") is not None
    own_cells.forget(port, access.token_file)
    assert own_cells.token_of(f"http://127.0.0.1:{port}") is None


def test_a_token_that_others_can_read_is_not_used(cell: tuple[int, Access]):
    port, access = cell
    access.token_file.chmod(0o640)
    with pytest.raises(BadInput, match="640"):
        configured_token(f"http://127.0.0.1:{port}")


def test_another_users_program_at_the_port_gets_no_token(cell: tuple[int, Access], monkeypatch: pytest.MonkeyPatch):
    port, _ = cell
    with socket.create_server(("127.0.0.1", port)):
        assert own_cells.listeners(port) == {os.getuid()}
        assert own_cells.token_of(f"http://127.0.0.1:{port}") is not None
        monkeypatch.setattr(own_cells, "listeners", lambda port: {os.getuid() + 1})
        assert own_cells.token_of(f"http://127.0.0.1:{port}") is None
