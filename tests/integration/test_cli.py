"""The `sanjaya` command against a real cell."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import yaml

from libs.bus.local_broker.network import free_port
from libs.cli.cell import Cell, CellError, CellPlan
from libs.testing.leftovers import nothing_left_of

SANJAYA = str(Path(sys.executable).with_name("sanjaya"))
READERS = "the-token-of-a-reader"
Run = subprocess.CompletedProcess[str]

UNTIL_MOVED = "[ $SANJAYA_ATTEMPT = 2 ] || exec sleep 600"
"""A script that ends in its second attempt only."""


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    folder = tmp_path_factory.mktemp("cli")
    users = tmp_path_factory.mktemp("users") / "tokens.yaml"
    users.write_text(yaml.safe_dump({"tokens": [{"name": "rita", "token": READERS, "scopes": ["read"]}]}))
    plan = CellPlan(
        state_dir=folder, agents=2, gpus_per_agent=2, gateway_port=free_port(), auth=True, tokens_file=users
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        with Cell(plan) as running:
            yield running
    assert nothing_left_of(folder) == []


def sanjaya(cell: Cell | None, *arguments: str, cwd: Path | None = None, **changes: str) -> Run:
    gateway = {"SANJAYA_GATEWAY": cell.plan.gateway_url} if cell else {}
    environment = {**os.environ, **gateway, **changes}
    return subprocess.run(
        [SANJAYA, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is submitted uploads the current directory."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


def test_the_cell_is_its_users_whose_commands_find_the_token(cell: Cell):
    assert stat.S_IMODE(cell.plan.state_dir.stat().st_mode) == 0o700
    shown = sanjaya(cell, "config", "show", "--origin").stdout
    assert f"token\t(set)\t{cell.plan.state_dir / 'token'}" in shown.splitlines()
    assert cell.token() not in shown
    stranger = {"HOME": str(cell.plan.state_dir / "nowhere")}
    refused = sanjaya(cell, "jobs", **stranger)
    assert refused.returncode == 4 and "the request has no bearer token" in refused.stderr
    assert sanjaya(cell, "jobs", SANJAYA_TOKEN=READERS, **stranger).returncode == 0
    assert sanjaya(cell, "submit", "--", "true", SANJAYA_TOKEN=READERS, **stranger).returncode == 4


def test_a_link_opens_the_page_once(cell: Cell):
    link = sanjaya(cell, "page").stdout.strip()
    assert link.startswith(f"{cell.plan.gateway_url}/enter?code=")
    with httpx2.Client(base_url=cell.plan.gateway_url, follow_redirects=True) as browser:
        assert browser.get("/v1/status").status_code == 401
        assert "<title>Sanjaya</title>" in browser.get(link).text
        assert browser.get("/v1/status").status_code == 200
    with httpx2.Client(base_url=cell.plan.gateway_url) as another:
        assert another.get(link).status_code == 401


def test_what_could_never_run_is_refused_before_it_is_submitted(cell: Cell):
    before = sanjaya(cell, "jobs", "--output", "name").stdout
    refused = sanjaya(cell, "submit", "--gpus", "64", "--", "true")
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.startswith("error: this job could never run: 64 GPUs asked for, a gang can have 4")
    half = sanjaya(cell, "submit", "--gpus", "1.5", "--", "true")
    assert half.returncode == 2 and "/gpus" in half.stderr and "1.5" in half.stderr
    assert sanjaya(cell, "jobs", "--output", "name").stdout == before


def test_a_tenant_that_is_probably_mistyped_is_not_made(cell: Cell):
    assert sanjaya(cell, "tenant", "set", "vision", "--quota", "none").returncode == 0
    refused = sanjaya(cell, "submit", "--tenant", "visoin", "--", "true")
    assert refused.returncode == 2
    assert refused.stderr.startswith('error: there is no tenant "visoin" (did you mean "vision"?)')
    assert submitted(cell, "--tenant", "speech", "--", "true")


def submitted(cell: Cell, *arguments: str) -> str:
    """Submit in a pipe: the id, and nothing else."""
    done = sanjaya(cell, "submit", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_run_follows_the_output_and_passes_the_exit_code_on(cell: Cell):
    done = sanjaya(cell, "run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == "out\n"
    assert "err" in done.stderr


def test_a_directory_is_uploaded_and_run_in(cell: Cell, tmp_path: Path):
    (tmp_path / "train.py").write_text("import helper; print(helper.WORD)\n")
    (tmp_path / "helper.py").write_text("WORD = 'uploaded'\n")
    (tmp_path / "secret.key").write_text("x")
    (tmp_path / ".sanjayaignore").write_text("*.key\n")
    done = sanjaya(cell, "run", "--", "python", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "uploaded\n"), done.stderr
    assert f"uploading {tmp_path}: 3 files, 58 B, " in done.stderr
    again = sanjaya(cell, "run", "--workdir", str(tmp_path), "--", "sh", "-c", "ls; python train.py")
    assert again.stdout.split() == ["helper.py", "train.py", "uploaded"]
    assert "3 files, 58 B, not sent: the cell has it already" in again.stderr
    missing = sanjaya(cell, "submit", "--", "python", "trian.py", cwd=tmp_path)
    assert missing.returncode == 2 and "did you mean train.py" in missing.stderr
    nothing = sanjaya(cell, "run", "--no-upload", "--", "sh", "-c", "ls | wc -l", cwd=tmp_path)
    assert (nothing.stdout.strip(), nothing.returncode) == ("0", 0)


def test_files_of_a_job_are_listed_and_fetched(cell: Cell, tmp_path: Path):
    script = "mkdir runs/deep; echo weights > runs/deep/model; echo no > scratch; pwd"
    done = sanjaya(cell, "run", "-n", "keeping", "--output", "runs", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    work, kept = done.stdout.strip(), cell.plan.state_dir / "nodes"
    shown = json.loads(sanjaya(cell, "show", "keeping", "--json").stdout)
    assert shown["folder"] == work and shown["output_folder"].startswith(str(kept))
    described = sanjaya(cell, "show", "keeping").stdout
    assert f"on the node  {work}" in described and f"keeps        {shown['output_folder']}" in described
    assert (Path(shown["output_folder"]) / "deep" / "model").read_text() == "weights\n"
    listed = sanjaya(cell, "ls", "keeping", "--no-headers").stdout.splitlines()
    assert [line.split("\t")[:2] for line in listed] == [["runs/", "folder"], ["scratch", "3 B"]]
    fetched = sanjaya(cell, "cp", "keeping:runs", ".", cwd=tmp_path)
    assert fetched.returncode == 0 and "1 file, 8 B, from keeping" in fetched.stderr
    assert (tmp_path / "runs" / "deep" / "model").read_text() == "weights\n"
    assert sanjaya(cell, "cp", "keeping:scratch", str(tmp_path / "here")).returncode == 0
    assert (tmp_path / "here").read_text() == "no\n"
    missing = sanjaya(cell, "cp", "keeping:missing", ".", cwd=tmp_path)
    assert missing.returncode == 3 and "no such file" in missing.stderr
    assert sanjaya(cell, "cp", "keeping", ".").returncode == 2


def test_files_are_added_to_a_job_that_waits(cell: Cell, tmp_path: Path):
    blocker = submitted(cell, "--gpus", "4", "-n", "blocker", "--", "sleep", "100")
    waiting = submitted(cell, "--gpus", "4", "-n", "added-to", "--", "cat", "conf/lr.txt")
    (tmp_path / "lr.txt").write_text("0.1\n")
    added = sanjaya(cell, "cp", str(tmp_path / "lr.txt"), "added-to:conf/")
    assert added.returncode == 0 and "1 file, 4 B added to" in added.stderr
    assert sanjaya(cell, "cancel", blocker, "--grace", "1s").returncode == 0
    assert sanjaya(cell, "wait", waiting).returncode == 0
    assert sanjaya(cell, "logs", waiting).stdout.split() == ["0.1"] * 4
    late = sanjaya(cell, "cp", str(tmp_path / "lr.txt"), f"{waiting}:")
    assert late.returncode == 1 and "was placed before" in late.stderr
    assert "adds files" in sanjaya(cell, "story", waiting).stdout


def test_what_is_known_of_the_training_goes_along(cell: Cell):
    known = ("--model", "ResNet-18", "--batch-size", "64", "--total-steps", "500", "--weight", "2")
    job = submitted(cell, *known, "--rate", "v100=20", "--rate", "k80=4.5", "--deadline-s", "3600", "--", "true")
    spec = json.loads(sanjaya(cell, "show", job, "--json").stdout)["spec"]
    assert (spec["model"], spec["batch_size"], spec["total_steps"], spec["weight"]) == ("ResNet-18", 64, 500, 2)
    assert (spec["throughputs"], spec["deadline_s"]) == ({"v100": 20, "k80": 4.5}, 3600)


def test_a_slurm_script_runs_as_it_is(cell: Cell, tmp_path: Path):
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --job-name=slurm-job --gpus=1\n#SBATCH --mail-type=END\necho $SLURM_NNODES\n"
    )
    job = sanjaya(cell, "submit", str(script))
    assert "mail-type" in job.stderr and job.returncode == 0
    assert sanjaya(cell, "wait", job.stdout.strip()).returncode == 0
    assert sanjaya(cell, "logs", "slurm-job").stdout == "1\n"


def test_what_waits_says_why_and_goes_when_cancelled(cell: Cell):
    first = submitted(cell, "--gpus", "2", "--nodes", "1", "-n", "first", "--", "sleep", "100")
    second = submitted(cell, "--gpus", "2", "--nodes", "1", "-n", "second", "--", "sleep", "100")
    waiting = submitted(cell, "--gpus", "2", "--nodes", "1", "-n", "waiting", "--", "true")
    why = sanjaya(cell, "why", "waiting")
    assert why.returncode == 0 and "QUEUED" in why.stdout and "InsufficientGpus" in why.stdout
    assert sanjaya(cell, "wait", "waiting", "--timeout", "0.2").returncode == 124
    assert sanjaya(cell, "cancel", first[:7], second, "--grace", "1s").returncode == 0
    assert sanjaya(cell, "wait", waiting, "--exit-code").returncode == 0
    assert sanjaya(cell, "wait", first, "--exit-code").returncode == 143


def test_pause_resume_and_priority(cell: Cell, tmp_path: Path):
    end = tmp_path / "end"
    job = submitted(cell, "-n", "held", "--", "sh", "-c", f"until [ -e {end} ]; do sleep 0.1; done")
    assert sanjaya(cell, "pause", job).returncode == 0
    assert sanjaya(cell, "set", job, "--priority", "7").returncode == 0
    assert json.loads(sanjaya(cell, "show", job, "--json").stdout)["priority"] == 7
    assert sanjaya(cell, "resume", job).returncode == 0
    end.touch()
    assert sanjaya(cell, "wait", job).returncode == 0


def test_jobs_with_a_label_are_changed_together_and_are_history_then(cell: Cell):
    ours = [submitted(cell, "--label", "run=night", "--", "sleep", "100") for _ in range(2)]
    other = submitted(cell, "--label", "run=day", "--", "sleep", "100")
    for command in (["set", "--priority", "7"], ["pause"], ["resume"]):
        done = sanjaya(cell, *command, "-l", "run=night")
        assert done.returncode == 0 and sorted(line.split()[0] for line in done.stdout.splitlines()) == sorted(ours)
    shown = json.loads(sanjaya(cell, "jobs", "-l", "run=night", "--json").stdout)
    assert [job["priority"] for job in shown] == [7, 7]
    assert "not elastic" in sanjaya(cell, "set", ours[0], "--max-gpus", "2").stderr
    for bound in ("--max-gpus=2", "--compute-share=0.3"):
        assert sanjaya(cell, "set", "j-none", bound).returncode == 3
    assert sanjaya(cell, "set", ours[0]).returncode == 2
    assert sanjaya(cell, "pause").returncode == 2
    assert sanjaya(cell, "cancel", "-l", "run=night", "--grace", "1s").returncode == 0
    for job in ours:
        assert sanjaya(cell, "wait", job).returncode == 143
        assert sanjaya(cell, "set", job, "--compute-share=0.3").returncode == 2
    past = sanjaya(cell, "history", "-l", "run=night", "--state", "cancelled", "--since", "1h", "-o", "csv")
    lines = [line.split(",") for line in past.stdout.splitlines()]
    assert sorted(line[0] for line in lines[1:]) == sorted(ours)
    assert all(line[lines[0].index("STATE")] == "CANCELLED" for line in lines[1:])
    used = json.loads(sanjaya(cell, "usage", "--by", "job", "--json").stdout)
    hours = {use["key"]: use["gpu_s"] for use in used}
    assert hours[ours[0]] > 0 and hours[other] > 0
    assert sanjaya(cell, "history", "--state", "canceled").returncode == 2
    assert sanjaya(cell, "cancel", other, "--grace", "1s").returncode == 0


def test_draining_a_node_moves_its_job(cell: Cell):
    job = submitted(cell, "-n", "moving", "--", "sh", "-c", UNTIL_MOVED)
    while not (where := json.loads(sanjaya(cell, "show", job, "--json").stdout))["started_s"]:
        assert where["state"] in ("QUEUED", "STARTING", "RUNNING")
    node = where["placement"][0]["node_id"]
    assert sanjaya(cell, "drain", node).returncode == 2  # a reason is required
    drained = sanjaya(cell, "drain", node, "--reason", "ECC", "--now", "--wait")
    assert drained.returncode == 0, drained.stderr
    assert f"{job}  moving  1 GPU  RUNNING: starts again from zero elsewhere" in drained.stderr
    assert f"waiting for 1 job: {job}" in drained.stderr and f"{node} is empty" in drained.stdout
    assert sanjaya(cell, "wait", job).returncode == 0
    after = json.loads(sanjaya(cell, "show", job, "--json").stdout)
    assert after["attempt"] == 2 and after["placement"][0]["node_id"] != node
    assert "ECC" in sanjaya(cell, "story", job).stdout
    assert sanjaya(cell, "undrain", node).returncode == 0


def test_a_drain_lets_a_job_run_on_that_would_start_from_zero(cell: Cell, tmp_path: Path):
    job = submitted(cell, "-n", "staying", "--", "sh", "-c", f"while [ ! -e {tmp_path}/end ]; do sleep 0.1; done")
    while not (where := json.loads(sanjaya(cell, "show", job, "--json").stdout))["started_s"]:
        assert where["state"] in ("QUEUED", "STARTING", "RUNNING")
    node = where["placement"][0]["node_id"]
    drained = sanjaya(cell, "drain", node, "--reason", "ECC")
    assert f"{job}  staying  1 GPU  RUNNING: runs on here to its end, and loses nothing" in drained.stderr
    assert json.loads(sanjaya(cell, "show", job, "--json").stdout)["state"] == "RUNNING"
    (tmp_path / "end").touch()
    assert sanjaya(cell, "drain", node, "--reason", "ECC", "--wait").returncode == 0
    assert json.loads(sanjaya(cell, "show", job, "--json").stdout)["attempt"] == 1
    assert sanjaya(cell, "undrain", node).returncode == 0


def test_lists_in_every_form(cell: Cell):
    job = submitted(cell, "-n", "listed", "--label", "kind=listed", "--", "true")
    sanjaya(cell, "wait", job)
    rows = sanjaya(cell, "jobs", "-l", "kind=listed").stdout.splitlines()
    assert rows[0].split("\t")[:2] == ["ID", "NAME"] and rows[1].split("\t")[:2] == [job, "listed"]
    assert sanjaya(cell, "jobs", "-l", "kind=listed", "-o", "name").stdout.split() == [job]
    assert json.loads(sanjaya(cell, "jobs", "-l", "kind=listed", "--json").stdout)[0]["id"] == job
    assert len(sanjaya(cell, "gpus", "-o", "name").stdout.split()) == 4
    assert "virtual" in sanjaya(cell, "nodes").stdout
    assert "reserve_after_s" in sanjaya(cell, "settings", "show").stdout


def test_tenants_policy_and_settings(cell: Cell):
    assert sanjaya(cell, "tenant", "set", "vision", "--quota", "2").returncode == 0
    assert sanjaya(cell, "policy", "set", "strict_fifo", "--reason", "RFC 12").returncode == 0
    assert sanjaya(cell, "policy", "set", "backfill").returncode == 0
    assert sanjaya(cell, "settings", "set", "placement.reserve_after_s", "20").returncode == 0
    assert sanjaya(cell, "policy", "set", "magic").returncode == 2
    refused = sanjaya(cell, "submit", "-q", "vision", "--gpus", "4", "--dry-run", "--", "true")
    assert refused.returncode == 1 and "ExceedsQuota" in refused.stdout


def test_exit_codes_say_what_went_wrong(cell: Cell):
    missing = sanjaya(cell, "show", "no-such-job")
    assert missing.returncode == 3 and missing.stderr.startswith("error: ")
    assert sanjaya(cell, "submit", "--gpus", "0", "--", "true").returncode == 2
    assert sanjaya(cell, "submit").returncode == 2
    assert sanjaya(cell, "submitt").returncode == 2
    gone = sanjaya(None, "jobs", SANJAYA_GATEWAY="http://127.0.0.1:9")
    assert gone.returncode == 5 and "try:" in gone.stderr


def test_a_log_that_cannot_be_reached_is_one_line():
    done = sanjaya(None, "export", f"kafka://127.0.0.1:{free_port()}/local")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("error: cannot read")


def test_the_live_log_replays_and_the_cell_is_well(cell: Cell, tmp_path: Path):
    assert "0 differences" in sanjaya(cell, "replay", "--verify").stdout
    exported = tmp_path / "log.jsonl"
    assert sanjaya(cell, "export", "--out", str(exported)).returncode == 0
    assert sanjaya(None, "replay", str(exported), "--verify").returncode == 0
    assert sanjaya(None, "replay", str(cell.plan.state_dir / "log.db"), "--verify").returncode == 0
    assert sanjaya(None, "diff", str(exported), str(exported)).returncode == 0
    assert (
        sanjaya(None, "export", str(exported), "--format", "parquet", "--out", str(tmp_path / "x.parquet")).returncode
        == 0
    )
    records = [json.loads(line) for line in exported.read_text().splitlines()[1:]]
    joined = [record["offset"] for record in records if record["headers"]["ce_type"] == "node.joined.v1"]
    at = str(max(joined) + 1)
    state = json.loads(sanjaya(None, "state", str(exported), "--at", at, "--service", "placement").stdout)
    assert set(state["placement"]["nodes"]) == {"n1", "n2"}
    doctor = sanjaya(cell, "doctor")
    assert "conservation" in doctor.stdout and "green" in doctor.stdout, doctor.stdout


def test_a_second_cell_on_the_same_directory_is_refused(cell: Cell):
    with pytest.raises(CellError, match="already running"):
        Cell(cell.plan).start()


def test_a_trace_is_simulated(tmp_path: Path):
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "job_id,submit_time_s,tenant,model,batch_size,gpus,total_steps,duration_s\na,0,t,,,1,,60\nb,0,t,,,2,,60\n"
    )
    done = sanjaya(None, "simulate", "--trace", str(trace), "--cluster", "v100=2", "--gpus-per-server", "2")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["format"] == "simulation-result/1" and result["summary"]["completed"] == 2
    trace.write_text("job_id,submit_time_s\nx,soon\n")
    broken = sanjaya(None, "simulate", "--trace", str(trace), "--cluster", "v100=2")
    assert broken.returncode == 2 and "trace.csv" in broken.stderr
