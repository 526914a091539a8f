"""Files of environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.cli.env_files import filled_in, variables
from libs.cli.scripts import from_script
from libs.contracts.bad_input import BadInput


def written(folder: Path, text: str, name: str = ".env") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_dotenv_syntax_is_read(tmp_path: Path):
    text = "# keys\nA=1\nexport B='two words'\n\nC=\"a\\nb\" # said\nD=\nE=$A\n"
    assert variables(written(tmp_path, text)) == {"A": "1", "B": "two words", "C": "a\nb", "D": "", "E": "$A"}


@pytest.mark.parametrize(
    "text, line, says",
    [
        ("A=1\n\nsecret-without-a-name\n", 3, "it sets no variable|is no name"),
        ("A=1\nB\n", 2, "B has no value"),
        ("1A=x\n", 1, "is no name of a variable"),
        ("A=1\nB='open\n", 2, "it sets no variable"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(tmp_path: Path, text: str, line: int, says: str):
    path = written(tmp_path, text)
    with pytest.raises(BadInput, match=says) as refused:
        variables(path)
    assert f"{path}:{line}" in str(refused.value) and "NAME=VALUE" in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="No such file"):
        variables(str(tmp_path / "none"))


def test_a_document_names_files_and_its_own_variables_outweigh_them(tmp_path: Path):
    first, second = written(tmp_path, "A=1\nB=1\nC=1\n"), written(tmp_path, "B=2\n", "more")
    job = {"command": "true", "env": {"C": "own"}, "env_file": [first, second]}
    assert filled_in(job) == {"command": "true", "env": {"A": "1", "B": "2", "C": "own"}}
    assert filled_in({"command": "true"}) == {"command": "true"}
    with pytest.raises(BadInput, match="env_file"):
        filled_in({"command": "true", "env_file": 3})


def test_a_script_names_its_environment():
    text = "#!/bin/bash\n#SANJAYA --setup='pip install x' --mount imagenet --mount coco --env-file .env\npython t.py\n"
    request = from_script(text, "t.sh", ["/bin/bash", "t.sh"], "t")
    assert (request["setup"], request["mounts"]) == ("pip install x", ["imagenet", "coco"])
    assert request["env_file"] == [".env"]
