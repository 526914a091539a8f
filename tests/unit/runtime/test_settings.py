"""Settings come from the environment, and a wrong one is refused by name."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from libs.runtime.settings import Settings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("SANJAYA_", "OTEL_")):
            monkeypatch.delenv(name)


def test_defaults_need_nothing():
    settings = Settings()
    assert settings.bus == f"sqlite:///{Path.home()}/.sanjaya/log.db"
    assert settings.database == f"sqlite:///{Path.home()}/.sanjaya/read_models.db"
    assert (settings.cell, settings.metrics_port, settings.otlp_endpoint) == ("local", 0, "")


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SANJAYA_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("SANJAYA_BUS", "kafka://a:9092,b:9092?security_protocol=SSL")
    monkeypatch.setenv("SANJAYA_CELL", "lab-1")
    monkeypatch.setenv("SANJAYA_METRICS_PORT", "9100")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    settings = Settings()
    assert settings.bus == "kafka://a:9092,b:9092?security_protocol=SSL"
    assert settings.database == f"sqlite:///{tmp_path}/read_models.db"
    assert (settings.cell, settings.metrics_port) == ("lab-1", 9100)
    assert settings.otlp_endpoint == "http://collector:4318"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SANJAYA_CELL", "My Cell", "cell 'My Cell': expected"),
        ("SANJAYA_BUS", "redis://x", "bus 'redis://x': expected"),
        ("SANJAYA_LOG_LEVEL", "chatty", "log level 'chatty': expected"),
        ("SANJAYA_METRICS_PORT", "70000", "less than or equal to 65535"),
        ("SANJAYA_SNAPSHOT_EVERY_S", "0", "greater than 0"),
        ("SANJAYA_NODE_TIMEOUT_S", "4", "a node time-out of 4 s with a lease margin of 4 s: expected a margin above 0"),
    ],
)
def test_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=said):
        Settings()
