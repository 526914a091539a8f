"""`make setup` takes the build of torch that the machine needs, and says what it will cost before it begins."""

from __future__ import annotations

import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from infra.install import (
    CPU_BUILD,
    DEFAULT_BUILD,
    INDEX,
    LEAST_PYTHON,
    TORCH,
    SetupError,
    choose,
    install,
    refuse_an_old_python,
)
from libs.cli import doctor
from libs.testing.processes import ROOT

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def wheel(folder: Path, name: str, version: str) -> None:
    """An empty package."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip knows of; there is no index, and the user's settings do not count."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv(INDEX, raising=False)
    return folder


def test_a_cpu_build_on_this_disk_is_taken_where_there_is_no_gpu(disk: Path):
    wheel(disk, "torch", "2.9.1+cpu")
    chosen = choose(PIP, index="", gpu=False)
    assert (chosen.requirement, chosen.size) == ("torch==2.9.1+cpu", CPU_BUILD)
    assert "on this disk" in chosen.why


def test_without_one_the_default_build_is_taken_and_its_size_and_the_ways_out_are_said(disk: Path):
    wheel(disk, "torch", "2.9.1")  # no word of a build: pip may have it with CUDA
    chosen = choose(PIP, index="", gpu=False)
    assert (chosen.requirement, chosen.size) == (TORCH, DEFAULT_BUILD)
    for said in ("no NVIDIA GPU", INDEX, "TORCH=none", str(CPU_BUILD)):
        assert said in chosen.why


def test_a_gpu_gets_the_default_build(disk: Path):
    wheel(disk, "torch", "2.9.1+cpu")
    assert choose(PIP, index="", gpu=True).size == DEFAULT_BUILD


@pytest.mark.parametrize("gpu", [False, True])
def test_an_index_that_the_user_names_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool):
    monkeypatch.delenv("PIP_NO_INDEX")
    wheel(tmp_path / "index" / "torch", "torch", "2.8.0+cpu")
    [file] = (tmp_path / "index" / "torch").glob("*.whl")
    (file.parent / "index.html").write_text(f'<a href="{file.name}">{file.name}</a>')
    chosen = choose(PIP, index=(tmp_path / "index").as_uri(), gpu=gpu)
    assert (chosen.requirement, chosen.size) == ("torch==2.8.0+cpu", CPU_BUILD)
    assert chosen.source == ("--index-url", (tmp_path / "index").as_uri())


def test_an_index_without_torch_is_refused_with_what_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    (tmp_path / "index").mkdir()
    with pytest.raises(SetupError, match=f"{INDEX}=.*expected the URL of a package index"):
        choose(PIP, index=(tmp_path / "index").as_uri(), gpu=False)


@pytest.mark.parametrize("torch", [True, False])
def test_size_and_time_are_said_before_pip_begins_and_torch_is_left_out_if_wanted(
    tmp_path: Path, disk: Path, capfd: pytest.CaptureFixture[str], torch: bool
):
    wheel(disk, "torch", "2.9.1+cpu")
    wheel(disk, "something", "1.0")
    lock = tmp_path / "requirements.lock"
    lock.write_text("something==1.0\n")
    install(tmp_path / "venv", lock, (), torch)
    said = capfd.readouterr().out
    assert said.index("GB to download") < said.index("minutes at") < said.index("Successfully installed")
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    assert (site / "something-1.0.dist-info").exists()
    assert (site / "torch-2.9.1+cpu.dist-info").exists() == torch


def test_a_package_that_cannot_be_had_ends_it_with_a_sentence(tmp_path: Path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("no-such-package==1.0\n")
    with pytest.raises(SetupError, match="pip could not install packages"):
        install(tmp_path / "venv", lock, (), torch=False)


def test_a_python_whose_tarfile_unpacks_anything_is_refused_before_the_download():
    refuse_an_old_python(LEAST_PYTHON)
    with pytest.raises(SetupError, match=r"is Python 3\.11\.2; expected 3\.11\.4 or later"):
        refuse_an_old_python((3, 11, 2))


@pytest.mark.parametrize("project", [ROOT, ROOT / "torch_agent"], ids=["all", "agent"])
def test_pip_and_doctor_ask_for_the_same_python(project: Path):
    assert doctor.LEAST_PYTHON == LEAST_PYTHON
    asked = tomllib.loads((project / "pyproject.toml").read_text())["project"]["requires-python"]
    assert asked == ">=" + ".".join(map(str, LEAST_PYTHON))
