"""What several files of tests compare with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.example_scripts import SCRIPTS, losses_of


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the losses of each example script on its own."""
    folder = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(losses_of(folder, *SCRIPTS), env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return folder
