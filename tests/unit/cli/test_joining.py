"""What `sanjaya up --host` makes, and what it refuses."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from libs.bus.http.token import JoinToken
from libs.cli.cell import CellError, CellPlan
from libs.cli.cell.joining import Joining
from libs.cli.main import app_for
from services.gateway.adapters.tokens import Tokens


def joining(folder: Path, host: str = "127.0.0.2", cell: str = "local") -> Joining:
    return Joining(folder, cell, host, 8420, ("n1", "n2"))


def test_the_files_are_the_owners_and_stay_what_they_are(tmp_path: Path) -> None:
    made = joining(tmp_path)
    token = made.prepare()
    for path in (made.key, made.token_file, made.tokens_file, made.certificate.parent):
        assert not path.stat().st_mode & 0o077, path
    assert made.prepare() == token == JoinToken.parse(made.token_file.read_text())
    assert token.secret not in made.tokens_file.read_text()


def test_a_new_certificate_makes_a_new_token(tmp_path: Path) -> None:
    made = joining(tmp_path)
    before = made.prepare()
    made.certificate.unlink()
    after = made.prepare()
    assert before.fingerprint != after.fingerprint
    assert before.secret != after.secret


def test_the_token_is_for_agents_of_other_nodes_and_for_nothing_else(tmp_path: Path) -> None:
    made = joining(tmp_path)
    token = made.prepare()
    owner = Tokens.read(made.tokens_file).find(token.secret)
    assert owner is not None
    assert [owner.is_for_node(node_id) for node_id in ("gpu-7", "n1", "n2", "n3")] == [True, False, False, True]
    assert {scope.value for scope in owner.scopes} == {"agent"}


def test_the_command_joins_from_anywhere(tmp_path: Path) -> None:
    made = joining(tmp_path, cell="lab")
    token = made.prepare()
    words = ["sanjaya", "agent", "--join", "https://127.0.0.2:8420", "--token", str(token), "--cell", "lab"]
    assert shlex.split(made.command()) == words


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("127.0.0.1", "expected the address by which other machines reach this one"),
        ("0.0.0.0", "expected the address by which other machines reach this one"),
        ("192.0.2.1", "192.0.2.1 is no address of this machine; expected one of"),
        ("no.such.host.invalid", "expected an address of this machine"),
    ],
)
def test_a_host_that_is_of_no_use_is_refused(tmp_path: Path, host: str, why: str) -> None:
    with pytest.raises(CellError, match=why):
        joining(tmp_path, host).address()


def test_without_a_host_nothing_is_opened(tmp_path: Path) -> None:
    plan = CellPlan(tmp_path)
    assert plan.joining is None
    assert not [name for name in plan.environment() if name.startswith(("SANJAYA_SECURE", "SANJAYA_TLS"))]


def test_on_kafka_agents_join_by_the_log() -> None:
    result = CliRunner().invoke(app_for(), ["up", "--bus", "kafka", "--host", "127.0.0.2"])
    assert result.exit_code == 2
    assert "sanjaya agent --bus kafka://HOST:PORT" in result.output
