"""The installed wheel, for tests. Name this module in `pytest_plugins` to have the fixtures."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from libs.testing.processes import ROOT

OF_JOBS = ("torch", "nvidia", "triton", "functorch", "sklearn", "scikit_learn")
OF_A_CLONE = ("sanjaya_scheduler", "_sanjaya_scheduler", "torch_agent", "_torch_agent")
WITHIN_S = 150.0


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both."""
    pytest.importorskip("hatchling", reason="wheels are built with hatchling, which is not installed here (make setup)")
    folder = tmp_path_factory.mktemp("dist")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder))
    build = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT), str(ROOT / "torch_agent")]
    subprocess.run(build, check=True, timeout=WITHIN_S)
    return folder


@pytest.fixture(scope="session")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel and the packages that it needs, those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    packages = folder / "packages"
    packages.mkdir()
    for site in (Path(path) for path in sys.path if Path(path).name == "site-packages"):
        for found in site.iterdir():
            if not found.name.startswith((*OF_JOBS, *OF_A_CLONE)) and not (packages / found.name).exists():
                (packages / found.name).symlink_to(found)
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    [wheel] = wheels.glob("sanjaya_scheduler-*.whl")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, timeout=WITHIN_S)
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    return python.parent
