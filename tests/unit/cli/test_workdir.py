"""Which files of a working directory are uploaded, and how they are packed."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from libs.cli.workdir import Limits, Selection, pack, placed_at, select, select_file
from libs.contracts.bad_input import BadInput

LIMITS = Limits(files=100, unpacked_bytes=100_000, packed_bytes=10_000)


def chosen(folder: Path, most_files: int = LIMITS.files) -> Selection:
    return select(folder, most_files)


def names(folder: Path) -> list[str]:
    return [entry.name for entry in chosen(folder).entries]


def members(folder: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(pack(chosen(folder), LIMITS)), mode="r:gz") as tar:
        return {member.name: member for member in tar.getmembers()}


def write(folder: Path, *paths: str) -> None:
    for name in paths:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_what_is_ignored_is_left_out(tmp_path: Path):
    write(tmp_path, "train.py", "data/big.bin", "data/small.csv", "src/__pycache__/x.pyc", ".git/HEAD", "keys/a.key")
    (tmp_path / ".sanjayaignore").write_text("# secrets\n*.key\n\ndata/*.bin\nkeys/\n")
    assert names(tmp_path) == [".sanjayaignore", "data/small.csv", "src", "train.py"]


def test_patterns_of_git_hold_and_ours_go_over_them(tmp_path: Path):
    write(tmp_path, "runs/1/log", "conf/local.yaml", "conf/base.yaml", "weights.pt", "sub/out.txt", "sub/in.txt")
    (tmp_path / ".gitignore").write_text("/runs/\n*.pt\nconf/*\n!conf/base.yaml\n")
    (tmp_path / ".sanjayaignore").write_text("!weights.pt\n")
    (tmp_path / "sub" / ".gitignore").write_text("out.txt\n")
    kept = [name for name in names(tmp_path) if not os.path.basename(name).startswith(".")]
    assert kept == ["conf/base.yaml", "sub/in.txt", "weights.pt"]


def test_patterns_above_the_directory_hold_within_its_git_repository(tmp_path: Path):
    write(tmp_path, "lab/exp/a.log", "lab/exp/a.py")
    (tmp_path / "lab" / ".gitignore").write_text("exp/*.log\n")
    assert names(tmp_path / "lab" / "exp") == ["a.log", "a.py"]
    (tmp_path / "lab" / ".git").mkdir()
    assert names(tmp_path / "lab" / "exp") == ["a.py"]


def test_the_same_files_are_the_same_bytes_with_their_modes(tmp_path: Path):
    write(tmp_path, "b.py", "a/run.sh")
    (tmp_path / "a/run.sh").chmod(0o755)
    (tmp_path / "empty").mkdir()
    packed = pack(chosen(tmp_path), LIMITS)
    os.utime(tmp_path / "b.py", (1, 1))
    assert pack(chosen(tmp_path), LIMITS) == packed
    found = members(tmp_path)
    assert list(found) == ["a/run.sh", "b.py", "empty"] and found["empty"].isdir()
    assert (found["a/run.sh"].mode, found["b.py"].uid, found["b.py"].uname) == (0o755, 0, "")


def test_links_are_followed_to_files_kept_to_folders_within_and_left_out_else(tmp_path: Path):
    inside, outside = tmp_path / "job", tmp_path / "datasets"
    write(inside, "src/model.py")
    write(outside, "images/1.png", "labels.csv")
    (inside / "labels.csv").symlink_to(outside / "labels.csv")
    (inside / "lib").symlink_to(inside / "src")
    (inside / "images").symlink_to(outside / "images")
    (inside / "gone").symlink_to("nowhere")
    (inside / "round").symlink_to("round")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(inside / "socket"))
        found = chosen(inside)
    assert [entry.name for entry in found.entries] == ["labels.csv", "lib", "src/model.py"]
    assert [phrase.split(" ")[0] for phrase in found.left_out] == ["gone", "images", "round", "socket"]
    packed = members(inside)
    assert packed["labels.csv"].isfile() and packed["labels.csv"].size == len("labels.csv")
    assert packed["lib"].issym() and packed["lib"].linkname == "src"
    (inside / ".sanjayaignore").write_text("images/\nsocket\ngone\nround\n")
    assert chosen(inside).left_out == []


def test_folders_may_be_nested_deeper_than_pythons_stack(tmp_path: Path):
    here = os.open(tmp_path, os.O_DIRECTORY)
    for _ in range(1500):  # one by one: a path this long cannot be given at once
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    try:
        assert len(chosen(tmp_path).entries) == 1
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # pytest's own clearing is recursive


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_what_cannot_be_read_is_refused(tmp_path: Path):
    write(tmp_path, "secret/key")
    (tmp_path / "secret" / "key").chmod(0)
    with pytest.raises(BadInput, match=r"secret/key cannot be read.*\.sanjayaignore"):
        chosen(tmp_path)


def test_too_much_is_refused_with_the_largest_and_the_way_out(tmp_path: Path):
    write(tmp_path, *(f"shards/{number}" for number in range(12)), "train.py")
    with pytest.raises(BadInput, match=r"more than 10 files; most are in shards/ 12; expected at most 10 files"):
        chosen(tmp_path, most_files=10)
    (tmp_path / "data.bin").write_bytes(b"\0" * 90_000)
    (tmp_path / "model.bin").write_bytes(os.urandom(30_000))
    with pytest.raises(BadInput, match=r"largest: data\.bin 88 KiB, model\.bin 29 KiB, .*98 KiB\. Name .*--no-upload"):
        pack(chosen(tmp_path), LIMITS)
    (tmp_path / "data.bin").unlink()
    with pytest.raises(BadInput, match=r"at most 10 KiB packed"):
        pack(chosen(tmp_path), LIMITS)


def test_an_upload_is_added_to(tmp_path: Path):
    write(tmp_path / "job", "train.py", "conf/base.yaml", "conf/old.yaml")
    write(tmp_path / "more", "base.yaml", "new.yaml")
    before = tmp_path / "before.tar.gz"
    before.write_bytes(pack(chosen(tmp_path / "job"), LIMITS))
    (tmp_path / "more" / "base.yaml").write_text("another")
    added = pack(placed_at(chosen(tmp_path / "more"), "conf"), LIMITS, before)
    with tarfile.open(fileobj=io.BytesIO(added)) as tar:
        assert sorted(tar.getnames()) == ["conf/base.yaml", "conf/new.yaml", "conf/old.yaml", "train.py"]
        base = tar.extractfile("conf/base.yaml")
        assert base is not None and base.read() == b"another"
    before.write_bytes(added)
    one = pack(placed_at(select_file(tmp_path / "more" / "new.yaml"), "x/y.yaml"), LIMITS, before)
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        assert "x/y.yaml" in tar.getnames() and len(tar.getnames()) == 5


def test_a_file_is_no_directory(tmp_path: Path):
    with pytest.raises(BadInput, match="--workdir"):
        chosen(tmp_path / "nowhere")
