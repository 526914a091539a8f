"""Environments that jobs name: how they are found and made active, and how images are run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch_agent.environments.activation import Activation, NotThere, conda_prefixes, of_conda, of_python, of_venv
from torch_agent.environments.data import Data, NoSuchData, data_of, data_variables, wanted
from torch_agent.environments.images import RUNNERS, Container, Mount, found_runner, variables_for
from torch_agent.kept import KeptFolders
from torch_agent.options import parse

COMMAND = ["python", "train.py", "--lr", "0.1"]
INSIDE = Container(
    image="pytorch/pytorch:2.8",
    workdir="/s/work",
    mounts=(Mount("/s", "/s"), Mount("/mnt/imagenet", "/data", read_only=True)),
    variables=("MINE", "RANK"),
    gpus=(0, 3),
)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def conda_environment(prefix: Path, **variables: str) -> Path:
    program(prefix / "bin" / "python")
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "state").write_text(json.dumps({"env_vars": variables}))
    return prefix


def test_podman_is_told_gpus_by_cdi_and_no_value_of_a_variable():
    line = RUNNERS["podman"]("podman", INSIDE, COMMAND)
    assert line[:3] == ["podman", "run", "--rm"] and line[-5:] == ["pytorch/pytorch:2.8", *COMMAND]
    assert {"--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=3", "--env=MINE", "--env=RANK"} <= set(line)
    assert {"--volume=/s:/s", "--volume=/mnt/imagenet:/data:ro", "--workdir=/s/work"} <= set(line)
    assert variables_for("podman", {"MINE": "secret"}, (0,)) == {"MINE": "secret"}


def test_apptainer_takes_images_of_registries_and_files():
    line = RUNNERS["apptainer"]("apptainer", INSIDE, COMMAND)
    assert line[:4] == ["apptainer", "exec", "--cleanenv", "--nv"]
    assert line[-5:] == ["docker://pytorch/pytorch:2.8", *COMMAND]
    assert {"--bind=/s:/s", "--bind=/mnt/imagenet:/data:ro", "--pwd=/s/work"} <= set(line)
    for image in ("/images/torch.sif", "torch.sif", "oras://registry/torch"):
        virtual = Container(image, "/w", (), ())
        assert RUNNERS["apptainer"]("apptainer", virtual, ["true"])[-2:] == [image, "true"]
    assert "--nv" not in RUNNERS["apptainer"]("apptainer", virtual, ["true"])
    assert variables_for("apptainer", {"A": "1"}, ()) == {"A": "1", "APPTAINERENV_A": "1"}


def test_enroot_changes_the_directory_itself():
    line = RUNNERS["enroot"]("enroot", INSIDE, COMMAND)
    assert line[:3] == ["enroot", "start", "--rw"]
    assert "/mnt/imagenet:/data:none:x-create=dir,bind,ro" in line and line.count("--env") == 2
    assert line[line.index("pytorch/pytorch:2.8") :] == [
        *("pytorch/pytorch:2.8", "/bin/sh", "-c", 'cd "$0" && exec "$@"', "/s/work"),
        *COMMAND,
    ]
    assert variables_for("enroot", {}, (0, 3)) == {"NVIDIA_VISIBLE_DEVICES": "0,3"}


def test_the_runner_is_the_first_that_is_there(tmp_path: Path):
    assert found_runner("auto", str(tmp_path)) == ""
    program(tmp_path / "enroot")
    assert (found_runner("auto", str(tmp_path)), found_runner("none", str(tmp_path))) == ("enroot", "")
    program(tmp_path / "podman")
    assert (found_runner("auto", str(tmp_path)), found_runner("enroot", str(tmp_path))) == ("podman", "enroot")
    assert found_runner("apptainer", str(tmp_path)) == ""


def test_a_virtual_environment_is_active_as_a_shell_would_make_it(tmp_path: Path):
    python = program(tmp_path / "v" / "bin" / "python")
    found = of_venv(tmp_path / "v")
    assert found == Activation(
        str(python), (str(python.parent),), {"VIRTUAL_ENV": str(tmp_path / "v")}, ("PYTHONHOME",)
    )
    with pytest.raises(NotThere, match=rf"no virtual environment at .*/w.*beside it: {tmp_path}/v"):
        of_venv(tmp_path / "w")


def test_an_interpreter_is_python_by_any_name(tmp_path: Path):
    python = program(tmp_path / "bin" / "python3.13")
    found = of_python(python, tmp_path / "commands")
    assert found.path == (str(tmp_path / "commands"), str(python.parent))
    assert (tmp_path / "commands" / "python").read_text() == f'#!/bin/sh\nexec {python} "$@"\n'
    with pytest.raises(NotThere, match=r"no interpreter at .*python3.14; beside it: .*python3.13"):
        of_python(tmp_path / "bin" / "python3.14", tmp_path / "commands")


def test_conda_environments_are_found_by_name_and_by_prefix(tmp_path: Path):
    root = conda_environment(tmp_path / "miniforge3")
    torch = conda_environment(root / "envs" / "torch", CACHE="/c")
    elsewhere = conda_environment(tmp_path / "elsewhere")
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"{elsewhere}\n/gone\n")
    prefixes = conda_prefixes({"HOME": str(tmp_path), "PATH": ""})
    assert {"base": root, "torch": torch, "elsewhere": elsewhere}.items() <= prefixes.items()
    found = of_conda("torch", prefixes)
    assert found.path == (str(torch / "bin"),)
    assert (found.variables["CONDA_PREFIX"], found.variables["CONDA_DEFAULT_ENV"]) == (str(torch), "torch")
    assert found.variables["CACHE"] == "/c"
    assert of_conda(str(elsewhere), {}).python == str(elsewhere / "bin" / "python")
    with pytest.raises(NotThere, match=r"no conda environment jax; here: base, torch"):
        of_conda("jax", {"base": root, "torch": torch})


def test_data_has_a_name_and_a_folder_that_is_there(tmp_path: Path):
    assert data_of(f"imagenet={tmp_path}:ro") == ("imagenet", Data(tmp_path, read_only=True))
    known = dict([data_of(f"image-net={tmp_path}")])
    found = wanted(known, ["image-net"])
    assert data_variables(found, {"image-net": "/data"}) == {"SANJAYA_DATA_IMAGE_NET": "/data"}
    assert data_variables(found, {"image-net": ""}) == {"SANJAYA_DATA_IMAGE_NET": str(tmp_path)}
    with pytest.raises(NoSuchData, match="no data coco on this node; it has image-net"):
        wanted(known, ["coco"])
    for text in ("imagenet", "imagenet=relative", f"={tmp_path}", f"a b={tmp_path}", f"x={tmp_path}:rw", "x=/nowhere"):
        with pytest.raises(ValueError, match=r"expected NAME=PATH|there is no"):
            data_of(text)


def test_an_agent_says_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    bus = ["--bus", "sqlite:///log.db", "--state-dir", str(tmp_path / "s")]
    assert parse(bus).features == []
    program(tmp_path / "apptainer")
    options = parse([*bus, "--data", f"b={tmp_path}", "--data", f"a={tmp_path}:ro"])
    assert (options.features, options.image_runner) == (["data:a", "data:b", "images"], "apptainer")
    for wrong in (["--data", "imagenet"], ["--image-runner", "podman"]):
        with pytest.raises(SystemExit) as ended:
            parse([*bus, *wrong])
        assert ended.value.code == 2


def test_what_is_kept_is_bounded_and_what_is_in_use_stays(tmp_path: Path):
    kept = KeptFolders(tmp_path, most_bytes=250, longest_s=1000.0)
    newest = 0.0
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 100)
        newest = (tmp_path / name / "file").stat().st_mtime
    assert kept.clear({"a"}, newest) == [], "200 bytes are not in use"
    assert len(kept.clear((), newest)) == 1
    assert len(kept.clear((), newest + 2000.0)) == 2 and list(tmp_path.iterdir()) == []
