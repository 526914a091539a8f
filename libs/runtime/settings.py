"""Settings that every process of a cell shares, from `SANJAYA_*` environment variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from libs.node.lease import DEFAULTS, LeaseTerms, mistake_in

_CELL = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_BUS_SCHEMES = ("sqlite:", "kafka:", "memory:")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Settings(BaseSettings):
    """Each field is the environment variable `SANJAYA_<FIELD>`; what is not set has the default here."""

    model_config = SettingsConfigDict(env_prefix="SANJAYA_", extra="ignore", populate_by_name=True)

    state_dir: Path = Path("~/.sanjaya")
    """Where this machine keeps the embedded log, read models and journals, when not told otherwise."""
    bus: str = ""
    """The log: `sqlite:///<path>`, `kafka://<host>:<port>` or `memory:`; empty: `log.db` in `state_dir`."""
    cell: str = "local"
    """Name of the cell; prefixes its topics."""
    database: str = ""
    """SQLAlchemy URL of read models and snapshots; empty: `read_models.db` in `state_dir`."""
    gateway: str = "http://127.0.0.1:8420"
    """Where clients reach the gateway."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port of `/metrics` and `/healthz`; 0: off."""
    metrics_host: str = "127.0.0.1"
    """Address that the metrics port listens on."""
    log_level: str = "INFO"
    """`DEBUG`, `INFO`, `WARNING` or `ERROR`."""
    otlp_endpoint: str = Field(default="", validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """Where traces go (OTLP over HTTP); empty: no traces are made."""
    batch_records: int = Field(default=500, ge=1)
    """Most records that a core takes between two commits."""
    snapshot_every_records: int = Field(default=20_000, ge=1)
    """A core's state is saved after so many records of the log."""
    snapshot_every_s: float = Field(default=300.0, gt=0)
    """A core's state is saved at least so often while records come in."""
    check_every_records: int = Field(default=10_000, ge=1)
    """A core's state is checked for contradictions after so many records; 1 in tests."""
    node_timeout_s: float = Field(default=DEFAULTS.node_timeout_s, gt=0)
    """A node that is silent so long and for the margin, although the log delivers, is lost."""
    lease_margin_s: float = Field(default=DEFAULTS.margin_s, gt=0)
    """The tasks of a silent node stop so long before the time-out."""

    @property
    def lease(self) -> LeaseTerms:
        """When tasks of silent nodes stop, and when nodes are lost."""
        return LeaseTerms(node_timeout_s=self.node_timeout_s, margin_s=self.lease_margin_s)

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in _LEVELS:
            raise ValueError(f"log level {value!r}: expected one of {', '.join(_LEVELS)}")
        return value.upper()

    @field_validator("cell")
    @classmethod
    def _topic_prefix(cls, value: str) -> str:
        if not _CELL.fullmatch(value):
            raise ValueError(f"cell {value!r}: expected lower-case letters, digits, `-` and `_`, at most 63")
        return value

    @field_validator("bus")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if value and not value.startswith(_BUS_SCHEMES):
            raise ValueError(f"bus {value!r}: expected sqlite:///<path>, kafka://<host>:<port> or memory:")
        return value

    @model_validator(mode="after")
    def _whole_lease(self) -> Self:
        if (wrong := mistake_in(self.lease)) is not None:
            raise ValueError(f"SANJAYA_NODE_TIMEOUT_S, SANJAYA_LEASE_MARGIN_S: {wrong}")
        return self

    @model_validator(mode="after")
    def _fill_in(self) -> Self:
        self.state_dir = self.state_dir.expanduser()
        if not self.bus:
            self.bus = f"sqlite:///{self.state_dir / 'log.db'}"
        if not self.database:
            self.database = f"sqlite:///{self.state_dir / 'read_models.db'}"
        return self
