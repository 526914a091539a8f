"""What introspection refuses before it begins."""

from pathlib import Path

import pytest

from libs.runtime.exits import CONFIG
from services.introspection.__main__ import main


def test_a_key_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SANJAYA_CELL_KEY_FILE", str(tmp_path / "none"))
    assert main() == CONFIG
    assert "none cannot be read" in capsys.readouterr().err
