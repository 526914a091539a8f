"""Arrays, DAGs and dependencies on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.cli import spec
from libs.cli.group_views import as_row, counts_of, reasons
from libs.cli.job_options import OPTIONS, members
from libs.cli.scripts import from_script
from libs.contracts.bad_input import BadInput

NOTHING = dict.fromkeys(OPTIONS)


def test_options_say_how_a_job_stands_to_others():
    found = members(NOTHING | {"array": "0-99%4", "after": ["a,b:any", "c:fail"]}, {})
    assert found == {"array": "0-99%4", "after": "a,b:any,c:fail"}


def test_slurms_lines_are_understood():
    text = "#!/bin/bash\n#SBATCH --array=0-15%4\n#SBATCH --dependency=afterok:j-1:j-2,afterany:j-3\npython train.py\n"
    request = from_script(text, "x.sh", ["x"], "x")
    assert request["array"] == "0-15%4" and request["after"] == ["j-1:ok", "j-2:ok", "j-3:any"]
    ours = from_script("#SANJAYA --array 1,3 --after prepare:fail\n", "x.sh", ["x"], "x")
    assert (ours["array"], ours["after"]) == ("1,3", "prepare:fail")


@pytest.mark.parametrize("text", ["afterok", "afterok:", "singleton", "aftercorr:j-1", "afterok:j-1?afterok:j-2"])
def test_a_dependency_of_slurm_without_counterpart_is_refused_with_its_line(text: str):
    with pytest.raises(BadInput, match=r"x\.sh:1.*afterok:ID"):
        from_script(f"#SBATCH --dependency={text}\n", "x.sh", ["x"], "x")


@pytest.mark.parametrize(
    "text",
    [
        "jobs:\n  - {name: a, command: 'true'}\n  - {name: b, command: 'true', after: a}\n",
        "jobs:\n  a: {command: 'true'}\n  b: {command: 'true', after: a}\n",
    ],
)
def test_a_file_with_jobs_is_a_dag(tmp_path: Path, text: str):
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    assert spec.dag_of(spec.from_file(str(path)), str(path)) == {
        "name": "pipeline",
        "jobs": [{"name": "a", "command": "true"}, {"name": "b", "command": "true", "after": "a"}],
    }
    assert spec.dag_of({"command": "true"}, str(path)) is None
    with pytest.raises(BadInput, match="a list of jobs with names"):
        spec.dag_of({"jobs": ["a"]}, str(path))


def test_an_array_is_one_row_with_its_counts():
    group = {"id": "a-1", "name": "train", "state": "RUNNING", "jobs": 10, "kind": "array"}
    group["counts"] = {"FAILED": 1, "QUEUED": 5, "RUNNING": 2, "SUCCEEDED": 2}
    words = "3 of 10 ended: 5 queued, 2 running, 1 failed, 2 succeeded"
    assert counts_of(group) == words
    row = as_row({"id": "j-1", "name": "train[0]", "gpus": 1, "gpu_types": [], "group": group})
    assert (row["id"], row["name"], row["state"], row["where"], row["jobs"]) == ("a-1", "train", "RUNNING", words, 10)
    assert as_row({"id": "j-2", "group": None}) == {"id": "j-2"}


def test_why_tells_each_reason_once():
    jobs = [{"state": "QUEUED", "message": "waits", "reason": "ArrayLimit"}] * 3
    jobs += [{"state": "RUNNING", "message": "placed", "reason": "Fits"}]
    told = reasons(jobs)
    assert [line.split() for line in told] == [
        ["3", "jobs", "QUEUED:", "waits", "(ArrayLimit)"],
        ["1", "job", "RUNNING:", "placed", "(Fits)"],
    ]
