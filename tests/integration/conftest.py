"""What several files of tests compare with, or write to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_agent.probes.scaling import SOURCE, compiled

from services.projection.adapters.store import Store
from tests.integration.example_scripts import SCRIPTS, losses_of


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the losses of each example script on its own."""
    folder = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(losses_of(folder, *SCRIPTS), env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The allocator that limits the memory of virtual GPUs, compiled."""
    return compiled(SOURCE, tmp_path_factory.mktemp("lib"), os.environ["PATH"])


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for read models, of each kind; the file of tests has the plugin of PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'read_models.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Read models of cell `lab` in it."""
    store = Store(url, "lab")
    yield store
    store.close()
